"""Schemas of projects that read our files, taken from their repositories where present.

RDMA_IMAGES_UPSTREAM names a folder of git repositories, <owner>/<name>, clones or bare.
"""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

FOLDER = os.environ.get("RDMA_IMAGES_UPSTREAM", "")
needs_repositories = pytest.mark.skipif(not FOLDER, reason="RDMA_IMAGES_UPSTREAM names no folder of repositories")


@cache
def text(repository: str, revision: str, path: str) -> str:
    """Return a file of a repository as it was at a revision."""
    show = ["git", "-C", str(Path(FOLDER) / repository), "show", f"{revision}:{path}"]
    return subprocess.run(show, capture_output=True, text=True, check=True).stdout


@cache
def resource(repository: str, revision: str, path: str, version: str) -> Any:
    """Return the schema of a custom resource, strict as an API server's validation."""
    definition = yaml.load(text(repository, revision, path), Loader=yaml.CSafeLoader)
    (schema,) = [item["schema"] for item in definition["spec"]["versions"] if item["name"] == version]
    strict = _strict(schema["openAPIV3Schema"])
    strict["properties"]["metadata"] = {"type": "object"}  # the API server's own schema, not the resource's
    return jsonschema.Draft202012Validator(strict)


def _strict(node: Any) -> Any:
    """Return the schema with unknown keys refused, and Kubernetes' own words in JSON Schema's."""
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    schema = {key: _strict(value) for key, value in node.items()}
    if (
        isinstance(schema.get("properties"), dict)
        and "type" in schema
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        schema.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        schema = {key: value for key, value in schema.items() if key not in ("type", "anyOf")}
        schema["type"] = ["integer", "string"]
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    return schema


def problems(validator: Any, document: Any) -> list[str]:
    """Return what the schema says against the document."""
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]
