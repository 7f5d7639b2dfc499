"""Control characters in each text of the user's files and in each option: none reaches a Dockerfile or a script."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from invoke.exceptions import ParseError
from invoke.parser.context import ParserContext

from rdma_images.cli.parsing import TaskParser
from rdma_images.cli.program import namespace
from rdma_images.core import yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.maintain import schemas

CHARACTERS = ("\n", "\r", "\x1b", "\0")
REST = "RUN touch /injected"


def with_text_everywhere(
    node: Mapping[str, Any], definitions: Mapping[str, Any], text: str, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (field, content) with `text` in each place that the schema calls a text, and as each key that is free.

    The field of a key is the mapping that has it.
    """
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        yield from with_text_everywhere(definitions[name], definitions, text, path)
    for choice in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from with_text_everywhere(choice, definitions, text, path)
    if "string" in node.get("type", ()):
        yield path, text
    for key, child in node.get("properties", {}).items():
        for inner, content in with_text_everywhere(child, definitions, text, (*path, key)):
            yield inner, {key: content}
    if isinstance(values := node.get("additionalProperties"), Mapping):
        yield path, {text: {}}
        for inner, content in with_text_everywhere(values, definitions, text, (*path, "x")):
            yield inner, {"x": content}
    for items in (node.get("items"), *node.get("prefixItems", ())):
        if items:
            for inner, content in with_text_everywhere(items, definitions, text, (*path, "0")):
                yield inner, [content]


def cases(name: str, text: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (field, content) for each place of a file."""
    schema = schemas.schema(schemas.MODELS[name])
    yield from with_text_everywhere(schema, schema["$defs"], text)


def test_the_walk_reaches_the_fields_of_each_file() -> None:
    """Values, items of lists, keys of maps, and the kinds of a registry, which are alternatives of its schema."""
    reached = {".".join((name, *path)) for name in schemas.MODELS for path, _ in cases(name, REST)}
    assert reached >= {
        *("matrix.targets", "matrix.targets.x.workdir", "matrix.targets.x.files.0.to", "matrix.targets.x.env"),
        *("registries.registries.x.prefix", "registries.registries.x.credentials.password"),
        *("jobs.jobs.x.command.0", "mirrors.sources.x", "policy.exceptions.0.reason"),
    }


@pytest.mark.parametrize("character", CHARACTERS, ids=ascii)
@pytest.mark.parametrize("name", schemas.MODELS)
def test_a_text_of_a_file_is_refused_by_file_line_and_field(name: str, character: str) -> None:
    for path, content in cases(name, f"a{character}{REST}"):
        text = json.dumps(content, indent=1)
        line = next(number for number, line in enumerate(text.splitlines(), 1) if REST in line)
        with pytest.raises(RefusedError) as caught:
            yaml_file.loads(text, schemas.MODELS[name], f"{name}.yaml")
        where = f"{name}.yaml:{line}: {'.'.join(path) or 'the file'}: the character U+{ord(character):04X} is in it"
        assert str(caught.value).startswith(where)
        assert "\n" not in str(caught.value)
        assert REST not in str(caught.value)


@pytest.mark.parametrize("character", CHARACTERS, ids=ascii)
def test_an_option_of_a_task_is_refused_by_its_name(character: str) -> None:
    parser = TaskParser(contexts=namespace().to_contexts(), initial=ParserContext())
    parser.parse_argv([])
    options = [
        (context.name, name)
        for context in parser.contexts.values()
        for name, argument in context.flags.items()
        if argument.takes_value and name.startswith("--")
    ]
    assert ("plan", "--target") in options
    for task, option in options:
        with pytest.raises(ParseError, match=rf"^{option}: the character U\+{ord(character):04X} is in it") as caught:
            parser.parse_argv([task, f"{option}=a{character}{REST}"])
        assert REST not in str(caught.value)
