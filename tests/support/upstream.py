"""Schemas of the projects that take our files, read from their repositories where those are.

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
there = pytest.mark.skipif(not FOLDER, reason="RDMA_IMAGES_UPSTREAM names no folder of repositories")


@cache
def text(repository: str, revision: str, path: str) -> str:
    """Return a file of a repository as it was at a revision."""
    show = ["git", "-C", str(Path(FOLDER) / repository), "show", f"{revision}:{path}"]
    return subprocess.run(show, capture_output=True, text=True, check=True).stdout


@cache
def resource(repository: str, revision: str, path: str, version: str) -> Any:
    """Return the schema of a custom resource, made as strict as an API server with strict field validation."""
    definition = yaml.load(text(repository, revision, path), Loader=yaml.CSafeLoader)
    schema = next(one for one in definition["spec"]["versions"] if one["name"] == version)["schema"]["openAPIV3Schema"]
    strict = _strict(schema)
    strict["properties"]["metadata"] = {"type": "object"}  # the API server's own schema, not the resource's
    return jsonschema.Draft202012Validator(strict)


def _strict(node: Any) -> Any:
    """Return the schema with unknown keys refused, and Kubernetes' own words in JSON Schema's."""
    if isinstance(node, list):
        return [_strict(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: _strict(value) for key, value in node.items()}
    if (
        isinstance(made.get("properties"), dict)
        and "type" in made
        and not made.get("x-kubernetes-preserve-unknown-fields")
    ):
        made.setdefault("additionalProperties", False)
    if made.get("x-kubernetes-int-or-string"):
        made = {key: value for key, value in made.items() if key not in ("type", "anyOf")}
        made["type"] = ["integer", "string"]
    if made.get("nullable") and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    return made


def problems(validator: Any, document: Any) -> list[str]:
    """Return what the schema says against the document."""
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]
