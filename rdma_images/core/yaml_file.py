"""Strict YAML: scalars stay text, duplicates are refused, errors name file and line."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

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


YamlPath = tuple[str | int, ...]


def must_match(form: re.Pattern[str], fault: str) -> AfterValidator:
    """Return a validator of a text that `form` matches whole; `fault` follows one that it does not match."""

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(f"{text!r} {fault}")
        return text

    return AfterValidator(check)


class UnreadableError(Exception):
    """A text that is YAML and still cannot be taken. `line` is where, from 1."""

    def __init__(self, line: int, sentence: str) -> None:
        self.line = line
        super().__init__(sentence)


class Strict(BaseModel):
    """Base of models read from files: frozen, keys in kebab-case, unknown keys refused, each text a single line."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        alias_generator=lambda name: name.replace("_", "-"),
        defer_build=True,  # until the first file of its kind is read: most tasks read few
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        """Raise the error that names the keys there are, which pydantic's own does not."""
        taken, written = _keys(cls)
        if isinstance(data, dict) and (unknown := [key for key in data if key not in taken]):
            raise PydanticCustomError("unknown_key", "unknown", {"key": unknown[0], "known": written})
        return data


@functools.cache
def _keys(model: type[Strict]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the keys that a model takes, from files and from code; and those that files have."""
    written = tuple(str(field.validation_alias or name) for name, field in model.model_fields.items())
    return frozenset((*written, *model.model_fields)), written


class Document(Strict):
    """A whole file: knows the line of each value, and checks values against each other."""

    _name: str = PrivateAttr(default="")
    _lines: dict[YamlPath, tuple[str, int]] = PrivateAttr(default_factory=dict)

    @classmethod
    def expanded(cls, data: Any) -> tuple[Any, list[tuple[YamlPath, str]]]:
        """Return the data with each reference replaced; (path, sentence) for each that names nothing."""
        return data, []

    def problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield (path, sentence) for each contradiction between values; none by default."""
        yield from ()

    def where(self, *steps: str | int) -> str:
        """Return "file:line" of what is written at `steps`, or of the nearest thing around it."""
        return _where(self._lines, steps, self._name)


@dataclass(frozen=True)
class ForeignDocument:
    """A document of any form: mappings, lists, and scalars as the text that is written."""

    name: str
    data: object
    lines: Mapping[YamlPath, int]

    def line(self, *steps: str | int) -> int:
        """Return the line, from 1, of the value at `steps`, or of the nearest one around it."""
        return _nearest(self.lines, steps, 1)


Model = TypeVar("Model", bound=BaseModel)
Location = TypeVar("Location")


def load(path: Path, model: type[Model], *extensions: Path) -> Model:
    """Read `path` as `model`.

    Each of `extensions` adds keys to its mappings at any level, and replaces anything else. Scalars reach the
    model as strings (so 2.10 is not 2.1). Raises RefusedError with file and line for what cannot be read, is written
    twice, is not known, or is missing.
    """
    return _loads({str(file): files.read_text(file) for file in (path, *extensions)}, model)


def loads(text: str, model: type[Model], name: str) -> Model:
    """Return `load` for text at hand; `name` is what errors call it."""
    return _loads({name: text}, model)


class _Loader(yaml.CBaseLoader):
    """The loader without types of scalars, which stay text: to look for them is a third of its time."""

    def resolve(self, *_: object) -> str:
        """Return the same type for every value."""
        return ""

    def descend_resolver(self, *_: object) -> None:
        """Look for no types by the path of a value."""

    def ascend_resolver(self) -> None:
        """Look for no types by the path of a value."""


def documents(text: str, name: str, deepest: int = MAX_DEPTH) -> list[ForeignDocument]:
    """Return the documents of a YAML text of any form; `name` is what errors call it.

    Raises RefusedError with file and line if the text is no YAML, and if a key is written twice.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if match := UNPRINTABLE.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise RefusedError(f"{name}:{line}: not valid YAML: the character U+{ord(match[0]):04X}: remove it")
    parsed: list[ForeignDocument] = []
    try:
        for node in yaml.compose_all(text, _Loader):
            lines: dict[YamlPath, int] = {}
            parsed.append(ForeignDocument(name, _plain(node, (), lines, deepest), lines))
    except UnreadableError as error:
        raise RefusedError(f"{name}:{error.line}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{min(mark.line + 1, len(text.splitlines()) or 1)}" if mark else name
        tab = "a tab: YAML is indented with spaces" if mark and text.startswith("\t", mark.index) else ""
        raise RefusedError(f"{where}: not valid YAML: {tab or error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise RefusedError(f"{name}: not valid YAML: {error}") from None
    return parsed


def _loads(texts: Mapping[str, str], model: type[Model]) -> Model:
    """Return the model of several texts, by name: each extends the one before it."""
    lines: dict[YamlPath, tuple[str, int]] = {}
    data: Any = None
    for name, text in texts.items():
        document, *others = documents(text, name) or [ForeignDocument(name, {}, {})]
        if others:
            raise RefusedError(f"{name}:{others[0].line()}: a second document: write one file for each")
        content = _single_lines(document) if issubclass(model, Strict) else document.data
        data = content if data is None else _extended(data, content)
        lines |= {steps: (name, line) for steps, line in document.lines.items()}
    first = next(iter(texts))
    if issubclass(model, Document):
        data, wrong = model.expanded(data)
        if wrong:
            raise RefusedError("\n".join(f"{_where(lines, steps, first)}: {sentence}" for steps, sentence in wrong))
    try:
        loaded = model.model_validate(data)
    except ValidationError as error:
        sentences = [_sentence(e, lines, first) for e in error.errors(include_url=False)]
        raise RefusedError("\n".join(dict.fromkeys(sentences))) from None
    if isinstance(loaded, Document):
        loaded._name, loaded._lines = first, lines
        if problems := [f"{loaded.where(*steps)}: {sentence}" for steps, sentence in loaded.problems()]:
            raise RefusedError("\n".join(problems))
    return loaded


def _single_lines(document: ForeignDocument) -> Any:
    """Return the data with each text on one line, without the line break that ends a block of YAML.

    Raises RefusedError, with file and line, for a control character in a text or a key.
    """

    def checked(text: str, path: YamlPath) -> str:
        try:
            plain.check_characters(text)
        except ValueError as error:
            # Without the key that is the text.
            name = ".".join(str(step) for step in path if not plain.CONTROL_CHARACTER.search(str(step)))
            where = f"{document.name}:{document.line(*path)}"
            raise RefusedError(f"{where}: {name or 'the file'}: {error}") from None
        return text

    def single_lines(value: Any, path: YamlPath) -> Any:
        if isinstance(value, dict):
            return {checked(k, (*path, k)): single_lines(child, (*path, k)) for k, child in value.items()}
        if isinstance(value, list):
            return [single_lines(child, (*path, number)) for number, child in enumerate(value)]
        return checked(value.removesuffix("\n"), path) if isinstance(value, str) else value

    return single_lines(document.data, ())


def _extended(base: Any, addition: Any) -> Any:
    """Return `base` merged with `addition`: mappings key by key, all else replaced."""
    if not (isinstance(base, dict) and isinstance(addition, dict)):
        return addition
    added = {key: value for key, value in addition.items() if key not in base}
    return added | {key: _extended(value, addition[key]) if key in addition else value for key, value in base.items()}


def _plain(node: yaml.Node, path: YamlPath, lines: dict[YamlPath, int], deepest: int) -> Any:
    """Return a node as dict, list, str or None, and fill `lines` with the line of each path.

    Raises UnreadableError beyond the limits, for a key that is written twice, and for one that is no scalar.
    """
    lines[path] = node.start_mark.line + 1
    if len(path) > deepest:
        raise UnreadableError(lines[path], f"nested deeper than {deepest} levels: does an alias hold itself?")
    if len(lines) > MAX_VALUES:
        sentence = f"more than {MAX_VALUES:,} values, each alias counted as what it stands for: write fewer"
        raise UnreadableError(lines[path], sentence)
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


def _sentence(error: Any, lines: Mapping[YamlPath, tuple[str, int]], name: str) -> str:
    """Return one pydantic error as "file:line: what, where, fix"."""
    # The path in the file, without the steps that unions and validators add.
    path: YamlPath = ()
    for step in error["loc"]:
        path = (*path, step) if (*path, step) in lines else path
    value = ".".join(map(str, path)) or "the file"
    where, context = _where(lines, path, name), error.get("ctx", {})
    match error["type"]:
        case "unknown_key":
            key = context["key"]
            fix = suggestion(key, context["known"])
            return f"{_where(lines, (*path, key), name)}: unknown key {key!r} in {value}: {fix}"
        case "missing":
            return f"{where}: {value} has no {str(error['loc'][-1])!r}: add it"
        case "union_tag_invalid":
            key, tag = context["discriminator"].strip("'"), context["tag"]
            allowed = [word.strip(" '") for word in context["expected_tags"].split(",")]
            return f"{_where(lines, (*path, key), name)}: {value}.{key} is {tag!r}: {suggestion(tag, allowed)}"
        case "union_tag_not_found":
            return f"{where}: {value} has no {context['discriminator']}: add it"
        case _ if expected := expectation(error):
            return f"{where}: {value} is {error['input']!r}, but must be {expected}"
        case wrong if wrong in SHAPES:
            return f"{where}: {value} must be {SHAPES[wrong]}"
        case _:
            return f"{where}: {value}: {error['msg'].removeprefix('Value error, ')}"


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


def _where(lines: Mapping[YamlPath, tuple[str, int]], steps: YamlPath, name: str) -> str:
    """Return "file:line" of the value at `steps`, or of the nearest one around it; `name` is the file's."""
    file, line = _nearest(lines, steps, (name, 1))
    return f"{file}:{line}"


def _nearest(places: Mapping[YamlPath, Location], steps: YamlPath, default: Location) -> Location:
    """Return the place of the value at `steps`, or of the nearest one around it; `default` where none has one."""
    around = (steps[:length] for length in range(len(steps), -1, -1))
    return next((places[path] for path in around if path in places), default)
