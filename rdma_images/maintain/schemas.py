"""JSON schemas of the user's files, for their editors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import StringSchema

from rdma_images.core import atomic
from rdma_images.inputs import mirrors
from rdma_images.jobs.write import jobs_file
from rdma_images.plan import matrix
from rdma_images.publish.evidence import policy
from rdma_images.registry import registries

FOLDER = "schemas"
MODELS: Mapping[str, type[BaseModel]] = {
    "matrix": matrix.Matrix,
    "mirrors": mirrors.MirrorsFile,
    "registries": registries.Registries,
    "policy": policy.Policy,
    "jobs": jobs_file.JobsFile,
}


class _TextSchema(GenerateJsonSchema):
    """Schemas that accept numbers as text, which editors take `cuda: 13.0` for."""

    def str_schema(self, schema: StringSchema) -> JsonSchemaValue:
        return {**super().str_schema(schema), "type": ["string", "number"]}


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of what a YAML file may hold to be read as `model`."""
    document = model.model_json_schema(by_alias=True, schema_generator=_TextSchema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}


def write(folder: Path) -> list[Path]:
    """Write the schema of each file of `MODELS` below `folder`, and return the paths."""
    paths_written = []
    for name, model in MODELS.items():
        path = folder / FOLDER / f"{name}.json"
        atomic.write(path, json.dumps(schema(model), indent=2) + "\n")
        paths_written.append(path)
    return paths_written
