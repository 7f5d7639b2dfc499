"""The preflight's folder: its version, its layer's tar, and that it needs nothing but Python 3.8."""

import ast
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from rdma_images.build import preflight_folder
from rdma_images.core import paths
from tests.support.images import planned_image

MAX_LINES = 1500


def modules() -> dict[str, ast.Module]:
    return {name: ast.parse(text, name) for name, text in preflight_folder.files().items() if name.endswith(".py")}


def test_the_program_is_small_and_readable() -> None:
    own = [path.name for path in (paths.PACKAGE / "preflight").glob("*.py")]
    texts = [(paths.PACKAGE / "preflight" / name).read_text() for name in own]
    assert sum(text.count("\n") for text in texts) <= MAX_LINES
    for name, content in preflight_folder.files().items():
        assert all(len(line) <= 200 for line in content.decode().splitlines() if not name.endswith(".json")), name


def test_no_module_needs_what_is_not_in_the_folder() -> None:
    """The modules of two packages lie beside each other: none may have another's name."""
    files = preflight_folder.files()
    counts = [len(list((paths.PACKAGE / package).glob("*.py"))) - 1 for package in preflight_folder.PACKAGES]
    assert sum(counts) == len(modules())
    for name, tree in modules().items():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
                if node.module in [f"rdma_images.{package}" for package in preflight_folder.PACKAGES]:
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
            for imported in names:
                top, last = imported.split(".")[0], imported.split(".")[-1]
                is_here = top == "rdma_images" and f"{last}.py" in files
                assert is_here or top in sys.stdlib_module_names, f"{name} imports {imported}"


def test_the_syntax_is_python_3_8s() -> None:
    for name, content in preflight_folder.files().items():
        if name.endswith(".py"):
            ast.parse(content, name, feature_version=(3, 8))


def test_the_version_is_that_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    version = preflight_folder.version()
    assert len(version) == 12
    assert preflight_folder.files()["version"] == f"{version}\n".encode()
    assert preflight_folder.label() == {"io.rdma-images.preflight": version}
    preflight_folder.files.cache_clear()
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + (b"\n" if path.name == "gpus.py" else b""))
    assert preflight_folder.version() != version
    preflight_folder.files.cache_clear()


def test_equal_files_make_an_equal_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path)
    image = planned_image()
    layer = tmp_path / image.id / preflight_folder.ARCHIVE
    preflight_folder.pack(image)
    first = layer.read_bytes()
    preflight_folder.pack(image)
    assert layer.read_bytes() == first
    with tarfile.open(layer) as archive:
        members = {member.name: member for member in archive.getmembers()}
    program = members["opt/rdma-images/preflight/rdma-preflight"]
    link = members["usr/local/bin/rdma-preflight"]
    assert (program.mode, program.uid, program.mtime) == (0o755, 0, 0)
    assert link.linkname == "/opt/rdma-images/preflight/rdma-preflight"
    assert len(members) == len(preflight_folder.files()) + 1


def test_the_folder_is_written_as_files(tmp_path: Path) -> None:
    preflight_folder.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(preflight_folder.files())
    assert os.access(tmp_path / "rdma-preflight", os.X_OK)
    assert json.loads((tmp_path / "nccl-logs.json").read_text()).keys() == {"networks", "causes", "notes"}
