"""Strict YAML: every scalar a string until a model says otherwise, duplicates refused, errors with file and line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from rdma_images.errors import RefusedError, near

Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
DEEPEST = 20  # levels; no file of ours has more than 6, and an alias inside its own anchor would never end


class Strict(BaseModel):
    """Base of every model read from a file: unknown keys are errors, values never change. Keys are in kebab-case."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, alias_generator=lambda name: name.replace("_", "-")
    )


class Document(Strict):
    """A whole file: knows in which line each of its values was written, and finds what a single value cannot show."""

    _name: str = PrivateAttr(default="")
    _lines: dict[tuple[str | int, ...], int] = PrivateAttr(default_factory=dict)

    def problems(self) -> "Iterator[tuple[Path_, str]]":
        """What is wrong between values that are fine each, as (place, sentence). Nothing unless a document says so."""
        yield from ()

    def where(self, *steps: str | int) -> str:
        """ "file:line" of what is written at `steps`, or of the nearest thing around it."""
        return f"{self._name}:{self.line(*steps)}"

    def line(self, *steps: str | int) -> int:
        """The line, from 1, of what is written at `steps`, or of the nearest thing around it."""
        place = next((steps[:n] for n in range(len(steps), 0, -1) if steps[:n] in self._lines), ())
        return self._lines.get(place, 1)


Model = TypeVar("Model", bound=BaseModel)
Path_ = tuple[str | int, ...]


def load(path: Path, model: type[Model]) -> Model:
    """Read `path` as `model`.

    Scalars reach the model as strings (so 2.10 is not 2.1). Raises RefusedError with file and line for what cannot be
    read, is written twice, is not known, or is missing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RefusedError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(f"{path}: cannot be read: {error}") from None
    return loads(text, model, str(path))


def loads(text: str, model: type[Model], name: str) -> Model:
    """`load` for text at hand; `name` is what errors call it."""
    lines: dict[Path_, int] = {}
    try:
        node = yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{min(mark.line + 1, len(text.splitlines()) or 1)}" if mark else name
        raise RefusedError(f"{where}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise RefusedError(f"{name}: not valid YAML: {error}") from None
    data = {} if node is None else _plain(node, (), lines, name)
    try:
        read = model.model_validate(data)
    except ValidationError as error:
        sentences = [_sentence(e, lines, name, model) for e in error.errors(include_url=False)]
        raise RefusedError("\n".join(dict.fromkeys(sentences))) from None
    if isinstance(read, Document):
        read._name, read._lines = name, lines
        if problems := [f"{read.where(*place)}: {sentence}" for place, sentence in read.problems()]:
            raise RefusedError("\n".join(problems))
    return read


def _plain(node: yaml.Node, path: Path_, lines: dict[Path_, int], name: str) -> Any:
    """The node as dict, list, str or None; fills `lines` with the line of every path."""
    lines[path] = node.start_mark.line + 1
    if len(path) > DEEPEST:
        raise RefusedError(f"{name}:{lines[path]}: nested deeper than {DEEPEST} levels: does an alias hold itself?")
    if isinstance(node, yaml.MappingNode):
        plain: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise RefusedError(f"{name}:{line}: a key must be a plain word")
            key = key_node.value
            if key in plain:
                first = lines[(*path, key)]
                raise RefusedError(f"{name}:{line}: {key!r} is written twice, first in line {first}: remove one")
            plain[key] = _plain(value_node, (*path, key), lines, name)
            lines[(*path, key)] = line
        return plain
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child, (*path, i), lines, name) for i, child in enumerate(node.value)]
    # A plain (unquoted) empty, ~ or null is nothing; everything else stays the text that was written.
    if getattr(node, "style", None) is None and node.value in ("", "~", "null"):
        return None
    return node.value


# What pydantic calls a thing of another shape, in the words of YAML.
SHAPES = {
    "dict_type": "a mapping, lines of `key: value`",
    "model_type": "a mapping, lines of `key: value`",
    "tuple_type": "a list, as in [one, two]",
    "list_type": "a list, as in [one, two]",
    "string_type": "a word or a text",
}


def _sentence(error: Any, lines: dict[Path_, int], name: str, model: type[BaseModel]) -> str:
    """One pydantic error as "file:line: what, where, mend"."""
    loc: Path_ = error["loc"]
    place = _place(loc, lines)
    where = f"{name}:{lines.get(place, 1)}"
    inside = ".".join(map(str, _place(loc[:-1], lines))) or "the file"
    match error["type"]:
        case "extra_forbidden":
            known = _known_keys(model, loc[:-1])
            return f"{where}: unknown key {str(loc[-1])!r} in {inside}: {near(str(loc[-1]), known)}"
        case "missing":
            return f"{where}: {inside} has no {str(loc[-1])!r}: add it"
        case "literal_error":
            return f"{where}: {'.'.join(map(str, place))} is {error['input']!r}, but must be {error['ctx']['expected']}"
        case "union_tag_invalid":
            key, tag = error["ctx"]["discriminator"].strip("'"), error["ctx"]["tag"]
            where = f"{name}:{lines.get((*place, key), 1)}"
            known = [one.strip(" '") for one in error["ctx"]["expected_tags"].split(",")]
            return f"{where}: {'.'.join(map(str, (*place, key)))} is {tag!r}: {near(tag, known)}"
        case "union_tag_not_found":
            return f"{where}: {'.'.join(map(str, place))} has no {error['ctx']['discriminator']}: add it"
        case wrong if wrong in SHAPES:
            return f"{where}: {'.'.join(map(str, place)) or 'the file'} must be {SHAPES[wrong]}"
        case _:
            message = error["msg"].removeprefix("Value error, ")
            return f"{where}: {'.'.join(map(str, place)) or 'the file'}: {message}"


def _place(loc: Path_, lines: dict[Path_, int]) -> Path_:
    """The place in the file that an error is about: unions and validators add steps that are not in it."""
    place: Path_ = ()
    for step in loc:
        if (*place, step) in lines:
            place = (*place, step)
    return place


def _known_keys(model: type[BaseModel], steps: Path_) -> list[str]:
    """The keys that the models at `steps` know, as they are written in the file."""
    current = [model]
    for step in steps:
        fields = [f for one in current for n, f in one.model_fields.items() if step in (n, f.alias)]
        tagged = [one for one in current for f in one.model_fields.values() if step in get_args(f.annotation)]
        if fields:
            current = [inner for field in fields for inner in _models(field.annotation)]
        elif tagged:  # the step is the tag that picks one of a union
            current = tagged
    return list(dict.fromkeys(field.alias or n for one in current for n, field in one.model_fields.items()))


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models inside dict[str, Model], list[Model], Model | None, and unions of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]
