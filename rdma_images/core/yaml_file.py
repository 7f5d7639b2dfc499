"""Strict YAML: scalars stay text, duplicates are refused, errors name file and line."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, PrivateAttr, ValidationError
from yaml.composer import Composer

from rdma_images.core import files, plain
from rdma_images.core.errors import RefusedError, suggestion

MAX_DEPTH = 20  # levels; no file of ours has more than 6, and an alias inside its own anchor would never end
MAX_VALUES = 100_000  # values, each alias counted as what it stands for; no file of ours has more than 1,000
# Source: yaml.org/spec/1.2.2, c-printable; with the surrogates, which are no text, left out.
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# One text, or a list of them; always a tuple in the model.
Words = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda written: [written] if isinstance(written, str) else written, json_schema_input_type=str | tuple[str, ...]
    ),
]


class UnreadableError(Exception):
    """A text that is YAML and still cannot be taken. `line` is where, from 1."""

    def __init__(self, line: int, sentence: str) -> None:
        self.line = line
        super().__init__(sentence)


class Loader(Composer, yaml.CBaseLoader):
    """PyYAML's composer on libyaml's parser, limited in depth and number of values."""

    def __init__(self, text: str, deepest: int = MAX_DEPTH) -> None:
        yaml.CBaseLoader.__init__(self, text)
        Composer.__init__(self)
        self._level = self._count = 0
        self._deepest = deepest

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node. Raises UnreadableError beyond the limits."""
        self._level, self._count = self._level + 1, self._count + 1
        if self._level > self._deepest or self._count > MAX_VALUES:
            event = self.peek_event()
            line = event.start_mark.line + 1 if event and event.start_mark else 1
            raise UnreadableError(line, too_deep(self._deepest) if self._level > self._deepest else TOO_MANY)
        node = super().compose_node(parent, index)
        self._level -= 1
        return node


def too_deep(levels: int) -> str:
    """Return the sentence for a file that is nested deeper than `levels`."""
    return f"nested deeper than {levels} levels: does an alias hold itself?"


TOO_MANY = f"more than {MAX_VALUES:,} values, each alias counted as what it stands for: write fewer"


class Strict(BaseModel):
    """Base of models read from files: frozen, keys in kebab-case, unknown keys refused, each text a single line."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        alias_generator=lambda name: name.replace("_", "-"),
        defer_build=True,  # until the first file of its kind is read: most tasks read few
    )


class Document(Strict):
    """A whole file: knows the line of each value, and checks values against each other."""

    _name: str = PrivateAttr(default="")
    _lines: dict[tuple[str | int, ...], tuple[str, int]] = PrivateAttr(default_factory=dict)

    @classmethod
    def expanded(cls, data: Any) -> "tuple[Any, list[tuple[YamlPath, str]]]":
        """Return the data of the file with what it refers to in its place, and what cannot be: (path, sentence)."""
        return data, []

    def problems(self) -> "Iterator[tuple[YamlPath, str]]":
        """Yield (path, sentence) for each contradiction between values; none by default."""
        yield from ()

    def where(self, *steps: str | int) -> str:
        """Return "file:line" of what is written at `steps`, or of the nearest thing around it."""
        name, line = self._location(steps)
        return f"{name}:{line}"

    def line(self, *steps: str | int) -> int:
        """Return the line, from 1, of the value at `steps`, or of the nearest one around it."""
        return self._location(steps)[1]

    def _location(self, steps: tuple[str | int, ...]) -> tuple[str, int]:
        return _nearest(self._lines, steps, (self._name, 1))


Model = TypeVar("Model", bound=BaseModel)
Location = TypeVar("Location")
YamlPath = tuple[str | int, ...]


def load(path: Path, model: type[Model], *extensions: Path, only: tuple[str, str] | None = None) -> Model:
    """Read `path` as `model`.

    Each of `extensions` adds keys to its mappings at any level, and replaces anything else. Scalars reach the
    model as strings (so 2.10 is not 2.1). Of the mapping that `only` names first, nothing is
    read but the key that it names second. Raises RefusedError with file and line for what cannot be read, is written
    twice, is not known, or is missing.
    """
    return _loads({str(file): _text(file) for file in (path, *extensions)}, model, only)


def loads(text: str, model: type[Model], name: str) -> Model:
    """Return `load` for text at hand; `name` is what errors call it."""
    return _loads({name: text}, model)


def _text(path: Path) -> str:
    try:
        if not files.exists(path):
            raise RefusedError(f"{path}: no such file\nwrite it, or name another")
        content = files.read_bytes(path)
    except files.FileError as error:
        raise RefusedError(str(error)) from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RefusedError(f"{path}:{line}: not UTF-8 (byte {content[error.start]:#04x}): save it as UTF-8") from None


def _loads(texts: Mapping[str, str], model: type[Model], only: tuple[str, str] | None = None) -> Model:
    """Return the model of several texts, by name: each extends the one before it."""
    lines: dict[YamlPath, tuple[str, int]] = {}
    data: Any = None
    for name, text in texts.items():
        content, line_numbers = _parsed(text, name)
        data = content if data is None else _extended(data, content)
        lines |= {steps: (name, line) for steps, line in line_numbers.items()}
    first = next(iter(texts))
    if only:
        mapping, key = only
        data = {**data, mapping: {key: data[mapping][key]}}
    if issubclass(model, Strict):
        data = _single_lines(data, (), lambda steps: _where(_nearest(lines, steps, (first, 1))))
    if issubclass(model, Document):
        data, wrong = model.expanded(data)
        if wrong:
            places = ((_where(_nearest(lines, steps, (first, 1))), sentence) for steps, sentence in wrong)
            raise RefusedError("\n".join(f"{where}: {sentence}" for where, sentence in places))
    try:
        loaded = model.model_validate(data)
    except ValidationError as error:
        sentences = [_sentence(e, lines, first, model) for e in error.errors(include_url=False)]
        raise RefusedError("\n".join(dict.fromkeys(sentences))) from None
    if isinstance(loaded, Document):
        loaded._name, loaded._lines = first, lines
        if problems := [f"{loaded.where(*steps)}: {sentence}" for steps, sentence in loaded.problems()]:
            raise RefusedError("\n".join(problems))
    return loaded


def _single_lines(value: Any, path: YamlPath, where: Callable[[YamlPath], str]) -> Any:
    """Return the value with each text on one line, without the line break that ends a block of YAML.

    Raises RefusedError, with `where` of the text's path, for a control character in a text or a key.
    """
    if isinstance(value, dict):
        for key in value:
            _refuse_control_characters(key, (*path, key), where)
        return {key: _single_lines(child, (*path, key), where) for key, child in value.items()}
    if isinstance(value, list):
        return [_single_lines(child, (*path, number), where) for number, child in enumerate(value)]
    if not isinstance(value, str):
        return value
    text = value.removesuffix("\n")
    _refuse_control_characters(text, path, where)
    return text


def _refuse_control_characters(text: str, path: YamlPath, where: Callable[[YamlPath], str]) -> None:
    try:
        plain.check_characters(text)
    except ValueError as error:
        # Without the key that is the text.
        name = ".".join(str(step) for step in path if not plain.CONTROL_CHARACTER.search(str(step)))
        raise RefusedError(f"{where(path)}: {name or 'the file'}: {error}") from None


def _extended(base: Any, addition: Any) -> Any:
    """Return `base` merged with `addition`: mappings key by key, all else replaced."""
    if not (isinstance(base, dict) and isinstance(addition, dict)):
        return addition
    added = {key: value for key, value in addition.items() if key not in base}
    return added | {key: _extended(value, addition[key]) if key in addition else value for key, value in base.items()}


def _parsed(text: str, name: str) -> tuple[Any, dict[YamlPath, int]]:
    """Return a text as dicts, lists and strings, and the line of each."""
    lines: dict[YamlPath, int] = {}
    with _readable(text, name) as clean:
        node = Loader(clean).get_single_node()
        return ({} if node is None else _plain(node, (), lines)), lines


@dataclass(frozen=True)
class ForeignDocument:
    """A document of any form: mappings, lists, and scalars as the text that is written."""

    name: str
    data: object
    lines: Mapping[YamlPath, int]

    def line(self, *steps: str | int) -> int:
        """Return the line, from 1, of the value at `steps`, or of the nearest one around it."""
        return _nearest(self.lines, steps, 1)


def _nearest(places: Mapping[YamlPath, Location], steps: YamlPath, default: Location) -> Location:
    """Return the place of the value at `steps`, or of the nearest one around it; `default` where none has one."""
    around = (steps[:length] for length in range(len(steps), -1, -1))
    return next((places[path] for path in around if path in places), default)


def documents(text: str, name: str, deepest: int = MAX_DEPTH) -> list[ForeignDocument]:
    """Return the documents of a YAML text of any form; `name` is what errors call it.

    Raises RefusedError with file and line if the text is no YAML, and if a key is written twice.
    """
    parsed: list[ForeignDocument] = []
    with _readable(text, name) as clean:
        loader = Loader(clean, deepest)
        while loader.check_node():
            lines: dict[YamlPath, int] = {}
            if node := loader.get_node():
                parsed.append(ForeignDocument(name, _plain(node, (), lines, deepest), lines))
    return parsed


@contextmanager
def _readable(text: str, name: str) -> Iterator[str]:
    """Raise RefusedError with file and line for what the block finds to be no YAML."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if match := UNPRINTABLE.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise RefusedError(f"{name}:{line}: not valid YAML: the character U+{ord(match[0]):04X}: remove it")
    try:
        yield text
    except UnreadableError as error:
        raise RefusedError(f"{name}:{error.line}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{min(mark.line + 1, len(text.splitlines()) or 1)}" if mark else name
        raise RefusedError(f"{where}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise RefusedError(f"{name}: not valid YAML: {error}") from None


def _plain(node: yaml.Node, path: YamlPath, lines: dict[YamlPath, int], deepest: int = MAX_DEPTH) -> Any:
    """Return a node as dict, list, str or None, and fill `lines` with the line of each path."""
    lines[path] = node.start_mark.line + 1
    if len(path) > deepest:
        raise UnreadableError(lines[path], too_deep(deepest))
    if len(lines) > MAX_VALUES:
        raise UnreadableError(lines[path], TOO_MANY)
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise UnreadableError(line, "a key must be a plain word")
            key = key_node.value
            if key in mapping:
                first = lines[(*path, key)]
                raise UnreadableError(line, f"{key!r} is written twice, first in line {first}: remove one")
            mapping[key] = _plain(value_node, (*path, key), lines, deepest)
            lines[(*path, key)] = line
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child, (*path, i), lines, deepest) for i, child in enumerate(node.value)]
    # A plain (unquoted) empty, ~ or null is nothing; everything else stays the text that was written.
    if not getattr(node, "style", None) and node.value in ("", "~", "null"):
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


def _sentence(error: Any, lines: Mapping[YamlPath, tuple[str, int]], name: str, model: type[BaseModel]) -> str:
    """Return one pydantic error as "file:line: what, where, fix"."""
    loc: YamlPath = error["loc"]
    position = _position(loc, lines)
    where = _where(lines.get(position, (name, 1)))
    inside = ".".join(map(str, _position(loc[:-1], lines))) or "the file"
    match error["type"]:
        case "extra_forbidden":
            allowed = _model_keys(model, loc[:-1])
            return f"{where}: unknown key {str(loc[-1])!r} in {inside}: {suggestion(str(loc[-1]), allowed)}"
        case "missing":
            return f"{where}: {inside} has no {str(loc[-1])!r}: add it"
        case "union_tag_invalid":
            key, tag = error["ctx"]["discriminator"].strip("'"), error["ctx"]["tag"]
            where = _where(lines.get((*position, key), (name, 1)))
            allowed = [word.strip(" '") for word in error["ctx"]["expected_tags"].split(",")]
            return f"{where}: {'.'.join(map(str, (*position, key)))} is {tag!r}: {suggestion(tag, allowed)}"
        case "union_tag_not_found":
            return f"{where}: {'.'.join(map(str, position))} has no {error['ctx']['discriminator']}: add it"
        case _ if expected := expectation(error):
            return f"{where}: {'.'.join(map(str, position))} is {error['input']!r}, but must be {expected}"
        case wrong if wrong in SHAPES:
            return f"{where}: {'.'.join(map(str, position)) or 'the file'} must be {SHAPES[wrong]}"
        case _:
            message = error["msg"].removeprefix("Value error, ")
            return f"{where}: {'.'.join(map(str, position)) or 'the file'}: {message}"


def expectation(error: Any) -> str:
    """Return what a value must be, from pydantic's error; "" for other kinds of errors."""
    match error["type"]:
        case "literal_error":
            return str(error["ctx"]["expected"])
        case "int_parsing" | "int_type" | "int_from_float" | "int_parsing_size":
            return "a whole number"
        case "bool_parsing" | "bool_type":
            return "true or false"
        case "greater_than_equal":
            return f"{error['ctx']['ge']} or more"
        case "less_than_equal":
            return f"{error['ctx']['le']} or less"
        case _:
            return ""


def _where(position: tuple[str, int]) -> str:
    return f"{position[0]}:{position[1]}"


def _position(loc: YamlPath, lines: Mapping[YamlPath, tuple[str, int]]) -> YamlPath:
    """Return the path in the file, without the steps that unions and validators add."""
    steps: YamlPath = ()
    for step in loc:
        if (*steps, step) in lines:
            steps = (*steps, step)
    return steps


def _model_keys(model: type[BaseModel], steps: YamlPath) -> list[str]:
    """Return the keys that the models at `steps` know, as they are written in the file."""
    current = [model]
    for step in steps:
        fields = [f for candidate in current for n, f in candidate.model_fields.items() if step in (n, f.alias)]
        tagged = [
            candidate
            for candidate in current
            for f in candidate.model_fields.values()
            if step in get_args(f.annotation)
        ]
        if fields:
            current = [inner for field in fields for inner in _models(field.annotation)]
        elif tagged:  # the step is the tag that picks one of a union
            current = tagged
    return list(dict.fromkeys(field.alias or n for candidate in current for n, field in candidate.model_fields.items()))


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models inside dict[str, Model], list[Model], Model | None, and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]
