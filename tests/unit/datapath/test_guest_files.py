"""The start of guests: modules in loading order, and the kernel's archive, which machines of tests/e2e boot."""

import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.datapath import guest_files, packages


def module(*depends: str) -> bytes:
    """Return a file with the part of a kernel module that says what it depends on."""
    return b"\x7fELF\0license=GPL\0depends=" + ",".join(depends).encode() + b"\0name=x\0"


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    def write_modules(**files: bytes) -> Path:
        for name, content in files.items():
            path = tmp_path / "kernel" / "drivers" / name / f"{name.replace('_', '-')}.ko.xz"
            path.parent.mkdir(parents=True)
            path.write_bytes(lzma.compress(content))
        return tmp_path

    return write_modules


def test_a_module_comes_after_all_it_depends_on(tree: Callable[..., Path]) -> None:
    module_files = guest_files.modules(
        tree(rxe=module("core", "tunnel"), core=module(), tunnel=module("core"), other=module()), ("rxe",)
    )
    assert list(module_files) == ["core", "tunnel", "rxe"]
    assert module_files["core"] == module()


def test_a_kernel_without_soft_roce_is_said_to_be_the_wrong_one(tree: Callable[..., Path]) -> None:
    with pytest.raises(RdmaImagesError, match=r"no module 'rdma_rxe'\n.*cloud flavour"):
        guest_files.modules(tree(virtio_net=module()), ("virtio_net", "rdma_rxe"))


def test_the_same_content_is_the_same_archive() -> None:
    assert guest_files.archive({"b": b"2", "a": b"1"}, {}, {}) == guest_files.archive({"a": b"1", "b": b"2"}, {}, {})


def test_no_package_is_named_twice_and_every_tool_has_a_package() -> None:
    assert len(set(packages.PROGRAMS)) == len(packages.PROGRAMS)
    assert not set(packages.PROGRAMS) & set(packages.TOOL_PACKAGES)
