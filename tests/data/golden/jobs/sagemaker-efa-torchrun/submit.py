#!/usr/bin/env python3
"""Start the training job of request.json, with whatever credentials boto3 finds."""

import json
from pathlib import Path

import boto3

request = json.loads((Path(__file__).parent / "request.json").read_text(encoding="utf-8"))
print(boto3.client("sagemaker", region_name="us-west-2").create_training_job(**request)["TrainingJobArn"])
