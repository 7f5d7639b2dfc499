"""Strict YAML: what is wrong is said with file and line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.yaml_file import Document, Strict


class Leaf(Strict):
    value_of: str
    count: int = 0


class TreeDocument(Document):
    leaves: dict[str, Leaf]

    def problems(self) -> Iterator[tuple[tuple[str, str, str], str]]:
        for name, leaf in self.leaves.items():
            if leaf.value_of == "wrong":
                yield ("leaves", name, "value-of"), "this is wrong"


def refused(text: str) -> str:
    with pytest.raises(RefusedError) as error:
        yaml_file.loads(text, TreeDocument, "tree.yaml")
    return str(error.value)


def test_scalars_stay_as_written() -> None:
    tree = yaml_file.loads("leaves: {1.10: {value-of: 2.10}}", TreeDocument, "tree.yaml")
    assert tree.leaves["1.10"].value_of == "2.10"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("leaves:\n  a: {value-of: x}\n  a: {value-of: y}", "tree.yaml:3: 'a' is written twice, first in line 2"),
        ("leaves:\n  a:\n    value-off: x", "tree.yaml:3: unknown key 'value-off' in leaves.a: did you mean value-of?"),
        ("leaves:\n  a: {}", "tree.yaml:2: leaves.a has no 'value-of': add it"),
        ("leaves:\n  a: {value-of: x,\n      count: many}", "tree.yaml:3: leaves.a.count"),
        ("leaves:\n  a: {value-of: wrong}", "tree.yaml:2: this is wrong"),
        ("leaves: [", "tree.yaml:1: not valid YAML"),
        ("leaves:\n\tname: x", "tree.yaml:2: not valid YAML: a tab: YAML is indented with spaces"),
        ("leaves: [1]", "tree.yaml:1: leaves must be a mapping"),
        ("leaves:\n  a: {value-of: [x]}", "tree.yaml:2: leaves.a.value-of must be a word"),
        ("leaves:\n  a: &a\n    value-of: *a", "nested deeper"),
        ("leaves: {[a]: x}", "tree.yaml:1: a key must be a plain word"),
        ("", "tree.yaml:1: the file has no 'leaves': add it"),
    ],
)
def test_what_is_wrong_and_where(text: str, sentence: str) -> None:
    assert sentence in refused(text)


def test_more_than_any_file_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "tree.yaml"
    path.write_text("#" * (files.MAX_TEXT_BYTES + 1))
    with pytest.raises(RefusedError, match="more than 16 MiB"):
        yaml_file.load(path, TreeDocument)


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x7f", "\ud800", "\uffff"])
def test_the_line_of_a_character_that_yaml_does_not_have(character: str) -> None:
    assert f"tree.yaml:2: not valid YAML: the character U+{ord(character):04X}" in refused(
        f"leaves:\n  a{character}: b"
    )


def test_brackets_without_end() -> None:
    """From PyYAML 6.0.4 on the scanner ends it, before our reader counts levels."""
    sentence = refused("leaves:\n " + "[" * 100_000)
    assert sentence.startswith("tree.yaml:2: ")
    assert "nested deeper than 20 levels" in sentence or "maximum nesting depth" in sentence


def test_aliases_that_multiply() -> None:
    """Eight lists of ten aliases each: a hundred million values in 300 characters."""
    lists = "".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    assert "more than 100,000 values" in refused(f"leaves:\n  a0: &a0 x\n{lists}")


def test_a_list_without_end() -> None:
    assert "tree.yaml:100000: more than 100,000 values" in refused("- a\n" * 200_000)


@pytest.mark.parametrize(("text", "value"), [("", None), ("~", None), ("null", None), ("''", ""), ("'null'", "null")])
def test_what_is_plainly_empty_is_nothing(text: str, value: str | None) -> None:
    assert yaml_file.documents(f"key: {text}", "tree.yaml")[0].data == {"key": value}
