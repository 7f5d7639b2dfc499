"""The start of guests: modules in loading order, and the kernel's archive."""

import lzma
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.datapath import kit, packages


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
    module_files = kit.modules(
        tree(rxe=module("core", "tunnel"), core=module(), tunnel=module("core"), other=module()), ("rxe",)
    )
    assert list(module_files) == ["core", "tunnel", "rxe"]
    assert module_files["core"] == module()


def test_names_are_the_kernels_with_underscores_whatever_the_file_is_called(tree: Callable[..., Path]) -> None:
    module_files = kit.modules(tree(rdma_rxe=module("ib-core"), ib_core=module()), ("rdma_rxe",))
    assert list(module_files) == ["ib_core", "rdma_rxe"]


def test_a_module_needed_twice_is_loaded_once(tree: Callable[..., Path]) -> None:
    module_files = kit.modules(tree(a=module("c"), b=module("c"), c=module()), ("a", "b", "c"))
    assert list(module_files) == ["c", "a", "b"]


def test_a_kernel_without_soft_roce_is_said_to_be_the_wrong_one(tree: Callable[..., Path]) -> None:
    with pytest.raises(RdmaImagesError, match=r"no module 'rdma_rxe'\n.*cloud flavour"):
        kit.modules(tree(virtio_net=module()), ("virtio_net", "rdma_rxe"))


def entries(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Mode and content of everything in a newc archive, by path, in its order."""
    members: dict[str, tuple[int, bytes]] = {}
    offset = 0
    while True:
        numbers = [int(archive[offset + 6 + 8 * n : offset + 14 + 8 * n], 16) for n in range(13)]
        assert archive[offset : offset + 6] == b"070701"
        name = archive[offset + 110 : offset + 110 + numbers[11] - 1].decode()
        begin = (offset + 110 + numbers[11] + 3) // 4 * 4
        if name == "TRAILER!!!":
            return members
        members[name] = (numbers[1], archive[begin : begin + numbers[6]])
        offset = (begin + numbers[6] + 3) // 4 * 4


def test_the_archive_has_files_programs_links_and_the_folders_above_them_first() -> None:
    parsed = entries(kit.archive({"a/b/c": b"odd"}, {"init": b"#!"}, {"a/sh": "busybox"}))
    assert list(parsed) == ["a", "a/b", "a/b/c", "a/sh", "init"]
    assert parsed["a/b/c"] == (stat.S_IFREG | 0o644, b"odd")
    assert parsed["init"] == (stat.S_IFREG | 0o755, b"#!")
    assert parsed["a/sh"] == (stat.S_IFLNK | 0o777, b"busybox")
    assert stat.S_ISDIR(parsed["a/b"][0])


def test_the_same_content_is_the_same_archive() -> None:
    assert kit.archive({"b": b"2", "a": b"1"}, {}, {}) == kit.archive({"a": b"1", "b": b"2"}, {}, {})


def test_no_package_is_named_twice_and_every_tool_has_a_package() -> None:
    assert len(set(packages.PROGRAMS)) == len(packages.PROGRAMS)
    assert not set(packages.PROGRAMS) & set(packages.TOOL_PACKAGES)
