#!/usr/bin/env python3
"""Start the training job of request.json, with whatever credentials boto3 finds."""

import json
from pathlib import Path

import boto3

folder, region = Path(__file__).parent, "us-west-2"
request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
print(boto3.client("sagemaker", region_name=region).create_training_job(**request)["TrainingJobArn"])
