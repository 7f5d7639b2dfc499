"""Strict YAML: what is wrong is said with file and line."""

import pytest

from rdma_images import yamlfile
from rdma_images.errors import RefusedError
from rdma_images.yamlfile import Document, Strict


class Leaf(Strict):
    value_of: str
    count: int = 0


class Tree(Document):
    leaves: dict[str, Leaf]

    def problems(self):
        for name, leaf in self.leaves.items():
            if leaf.value_of == "wrong":
                yield ("leaves", name, "value-of"), "this is wrong"


def refused(text):
    with pytest.raises(RefusedError) as error:
        yamlfile.loads(text, Tree, "tree.yaml")
    return str(error.value)


def test_scalars_stay_as_written():
    tree = yamlfile.loads("leaves: {1.10: {value-of: 2.10}}", Tree, "tree.yaml")
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
        ("leaves: [1]", "tree.yaml:1: leaves must be a mapping"),
        ("leaves:\n  a: {value-of: [x]}", "tree.yaml:2: leaves.a.value-of must be a word"),
        ("leaves:\n  a: &a\n    value-of: *a", "nested deeper"),
        ("leaves: {[a]: x}", "tree.yaml:1: a key must be a plain word"),
        ("", "tree.yaml:1: the file has no 'leaves': add it"),
    ],
)
def test_what_is_wrong_and_where(text, sentence):
    assert sentence in refused(text)


def test_missing_file(tmp_path):
    with pytest.raises(RefusedError, match="no such file"):
        yamlfile.load(tmp_path / "none.yaml", Tree)


def test_not_text(tmp_path):
    path = tmp_path / "tree.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RefusedError, match="cannot be read"):
        yamlfile.load(path, Tree)


def test_where():
    tree = yamlfile.loads("leaves:\n  a:\n    value-of: x", Tree, "tree.yaml")
    assert tree.where("leaves", "a", "value-of") == "tree.yaml:3"
    assert tree.where("leaves", "a", "no such") == "tree.yaml:2"
