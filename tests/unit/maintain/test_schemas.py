"""The JSON schemas that editors read: they accept and refuse what the loader does."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rdma_images.core import paths
from rdma_images.core.paths import PROJECT
from rdma_images.maintain import schemas
from rdma_images.registry.registries import EXAMPLE

START = PROJECT / "rdma_images" / "cli" / "start" / "matrix.yaml"
FILES = {
    PROJECT / "matrix.yaml": "matrix",
    START: "matrix",
    PROJECT / "mirrors.example.yaml": "mirrors",
    EXAMPLE: "registries",
    PROJECT / "jobs.example.yaml": "jobs",
    PROJECT / "policy.example.yaml": "policy",
}


def problems(name: str, content: Any) -> list[str]:
    """Return what an editor underlines in a file that it checks with the schema `name`."""
    validator = jsonschema.Draft202012Validator(schemas.schema(schemas.MODELS[name]))
    return [error.message for error in validator.iter_errors(content)]


@pytest.mark.parametrize(("path", "name"), FILES.items(), ids=[f"{path.parent.name}/{path.name}" for path in FILES])
def test_our_files_are_valid_as_an_editor_reads_them(path: Path, name: str) -> None:
    text = path.read_text()
    assert text.startswith(f"# yaml-language-server: $schema=schemas/{name}.json\n")
    assert problems(name, yaml.safe_load(text)) == []


@pytest.mark.parametrize("name", schemas.MODELS)
def test_the_committed_schemas_are_those_of_the_models(name: str, tmp_path: Path) -> None:
    schemas.write(tmp_path)
    committed = (PROJECT / "schemas" / f"{name}.json").read_text()
    assert (tmp_path / "schemas" / f"{name}.json").read_text() == committed, f"run `{paths.COMMAND} matrix.schema`"
    jsonschema.Draft202012Validator.check_schema(json.loads(committed))


def target(**changes: Any) -> dict[str, Any]:
    """Return a matrix of one target, with `changes` in it."""
    fields = {"summary": "x", "fabric": "efa", "default": {"base": "debian13", "cuda": 13.0}}
    return {"targets": {"mine": {**fields, **changes}}}


def test_a_value_may_be_written_without_quotes_and_without_a_list() -> None:
    assert problems("matrix", target(values={"pytorch": "2.15.0", "cuda": [13.0, 13.2]})) == []


@pytest.mark.parametrize(
    ("content", "underlined"),
    [
        (target(fabirc="efa"), "'fabirc' was unexpected"),
        (target(fabric="infiniband"), "'infiniband' is not one of ['efa', 'erdma']"),
        (target(default={"bsae": "debian13"}), "'bsae' is not one of"),
        (target(exclude=[{"when": {"cuda": "13.0"}}]), "'reason' is a required property"),
        ({"targets": {"mine": {"summary": "x"}}}, "'fabric' is a required property"),
    ],
)
def test_what_the_loader_refuses_is_underlined(content: dict[str, Any], underlined: str) -> None:
    assert any(underlined in message for message in problems("matrix", content))


def test_every_field_of_a_target_has_a_description() -> None:
    fields = schemas.schema(schemas.MODELS["matrix"])["$defs"]["Target"]["properties"]
    assert [name for name, field in fields.items() if not field.get("description")] == []
