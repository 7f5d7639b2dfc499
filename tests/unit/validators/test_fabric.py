"""Packages that use a fabric without NCCL, in images as their wheels make them: one library of the fabric or two."""

from collections.abc import Mapping

import pytest

from tests.incidents import run
from tests.incidents.case import base
from tests.incidents.image import ImageChange

SITE = "/opt/venv/lib/python3.12/site-packages"
EFA = "/opt/amazon/efa/lib"
FABRIC = {"library": {"soname": "libfabric.so.1", "needed": ["libc.so.6"]}}


def library(*needed: str, runpath: str = "") -> dict[str, object]:
    """Return a library that needs others."""
    return {"library": {"needed": list(needed), **({"runpath": runpath} if runpath else {})}}


def outcome(check: str, files: Mapping[str, object], image: str = "efa") -> tuple[str, str]:
    """Return how a check of a base image with further files ends, and what it found."""
    changed = base(image).changed(ImageChange.model_validate({"files": files}))
    result = next(result for result in run.run_checks({"image": changed})["image"] if result.id == check)
    return result.outcome, result.actual


@pytest.mark.parametrize(
    "path",
    [
        "nixl_cu13.libs/nixl/libplugin_LIBFABRIC.so",
        "mooncake/engine.so",
        "nvidia/nvshmem/lib/nvshmem_transport_libfabric.so.7",
        "somebodys/libplugin_LIBFABRIC.so",
    ],
)
def test_a_package_that_takes_the_image_s_libfabric(path: str) -> None:
    assert outcome("transports.fabric", {f"{SITE}/{path}": library("libfabric.so.1")}) == ("passed", f"{SITE}/{path}")


@pytest.mark.parametrize(
    ("path", "copy", "needed"),
    [
        ("nixl_cu13.libs/nixl/libplugin_LIBFABRIC.so", "nixl_cu13.libs/libfabric.so.1", "libfabric.so.1"),
        (
            "mooncake/engine.so",
            "mooncake_transfer_engine_efa_cuda13.libs/libfabric-0a1b2c3d.so.1.29.0",
            "libfabric-0a1b2c3d.so.1.29.0",
        ),
    ],
)
def test_a_package_that_takes_a_second_libfabric(path: str, copy: str, needed: str) -> None:
    files = {f"{SITE}/{copy}": FABRIC, f"{SITE}/{path}": library(needed, runpath=f"{SITE}/{copy.partition('/')[0]}")}
    result, actual = outcome("transports.fabric", files)
    assert result == "failed"
    assert actual.startswith(f"{SITE}/{path} takes {SITE}/{copy}, and NCCL {EFA}/libfabric.so.1")


def test_mooncake_on_erdma_takes_the_image_s_verbs() -> None:
    engine = f"{SITE}/mooncake/engine.so"
    copy = f"{SITE}/mooncake_transfer_engine_cuda13.libs/libibverbs-0a1b2c3d.so.1"
    assert outcome("transports.fabric", {engine: library("libibverbs.so.1")}, "erdma") == ("passed", engine)
    files = {copy: library(), engine: library("libibverbs-0a1b2c3d.so.1", runpath=copy.rpartition("/")[0])}
    assert outcome("transports.fabric", files, "erdma")[0] == "failed"


def test_what_needs_no_library_of_the_fabric_has_none_to_compare() -> None:
    assert outcome("transports.fabric", {f"{SITE}/mooncake/engine.so": library("libc.so.6")})[0] == "skipped"


@pytest.mark.parametrize(
    ("fabric", "copy", "expected"),
    [
        ("efa", "nixl_cu13.libs/libibverbs-1de1263b.so.1.14.48.0", "passed"),  # of its UCX: on EFA it takes LIBFABRIC
        ("efa", "nixl_cu13.libs/libfabric-1de1263b.so.1", "failed"),
        ("efa", "uccl.libs/libibverbs-1de1263b.so.1", "failed"),
        ("efa", "x.libs/libibverbs-1de1263b.so.1", "failed"),
        ("erdma", "nixl_cu13.libs/libibverbs-1de1263b.so.1.14.48.0", "failed"),
    ],
)
def test_a_wheel_s_own_library_matters_where_its_package_uses_the_fabric_by_it(
    fabric: str, copy: str, expected: str
) -> None:
    assert outcome("libraries.bundled", {f"{SITE}/{copy}": library()}, fabric)[0] == expected
