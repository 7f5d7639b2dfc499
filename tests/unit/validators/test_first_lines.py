"""First lines that name the thing, the file and what follows from it, and how bad it is."""

import pytest

from rdma_images.core.check import Check
from tests.incidents import run
from tests.incidents.case import base, incidents
from tests.incidents.image import ImageChange

LIB = "/usr/lib/x86_64-linux-gnu"
PLUGIN_FOLDERS = "/etc/ld.so.conf.d/100_ofinccl.conf"
SECOND_NCCL = {
    f"{LIB}/libnccl.so.2": {"library": {"soname": "libnccl.so.2", "words": ["NCCL version 2.18.3+cuda12.1"]}}
}
PROGRAM = {"/usr/bin/all_reduce_perf": {"library": {"needed": ["libnccl.so.2", "libc.so.6"]}, "mode": "755"}}


def finding(check: str, change: dict[str, object], image: str = "efa") -> Check:
    """Return what a check that fails finds in a base image with a change."""
    changed = base(image).changed(ImageChange.model_validate(change))
    (failed,) = [result for result in run.run_checks({"image": changed})["image"] if result.id == check]
    assert failed.outcome == "failed"
    return failed


def test_a_library_in_a_folder_that_is_not_searched_is_named_with_it() -> None:
    check = finding("chain.holds", {"files": {"/etc/ld.so.conf.d/000_efa.conf": None}})
    assert check.actual.endswith(
        "cannot be opened: it finds no libfabric.so.1 (/opt/amazon/efa/lib has it, and is not searched)"
    )


def test_an_image_without_glibc_is_told_that_nccl_is_for_it() -> None:
    wheel = base("efa").files["/opt/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"]
    files = {"/usr/lib/libnccl.so.2": wheel.model_dump()}
    check = finding("nccl.closure", {"files": files, "labels": {"io.rdma-images.fabric": "efa"}}, "musl")
    assert "it is linked with glibc (libc.so.6), and Alpine Linux v3.22 has another C library, or none" in check.actual


@pytest.mark.parametrize(
    ("files", "severity", "user"), [({}, "note", "what loads NCCL without torch"), (PROGRAM, "warning", *PROGRAM)]
)
def test_a_second_nccl_matters_where_something_takes_it(files: dict[str, object], severity: str, user: str) -> None:
    check = finding("nccl.loader", {"files": {**SECOND_NCCL, **files}}, "torch")
    assert (check.severity, f"{user} takes NCCL 2.18.3+cuda12.1 at {LIB}/libnccl.so.2, " in check.actual) == (
        severity,
        True,
    )


@pytest.mark.parametrize(("cupy", "severity"), [("13.6.0", "warning"), ("14.2.0", "note")])
def test_a_cupy_that_looks_for_the_wheels_nccl_takes_no_second(cupy: str, severity: str) -> None:
    """Run with CuPy 14.2.0 beside NCCL 2.25.1 of the system: it had the wheel's 2.27.5, before `import torch` too."""
    image = incidents()["cugraph-issue-4465-older-nccl-of-the-system"].image
    changed = image.changed(ImageChange.model_validate({"wheels": {"cupy-cuda12x": cupy}}))
    (check,) = [result for result in run.run_checks({"image": changed})["image"] if result.id == "nccl.loader"]
    assert (check.outcome, check.severity) == ("failed", severity)


def test_one_file_that_is_not_there_is_one_finding() -> None:
    preloaded = f"{LIB}/libnccl.so:/opt/nccl/libnccl.so"
    nccl = {f"{LIB}/libnccl.so": SECOND_NCCL[f"{LIB}/libnccl.so.2"]}
    change = {"env": {"LD_PRELOAD": preloaded}, "files": nccl}
    assert finding("environment.files", change).actual == (
        "LD_PRELOAD=/opt/nccl/libnccl.so is not there: every program complains, and nothing is preloaded"
    )


def test_a_link_and_its_file_are_one_fault() -> None:
    check = finding("libraries.intact", {"files": {"/opt/amazon/efa/lib/libfabric.so.1.29.1": ""}})
    assert (
        check.actual
        == "/opt/amazon/efa/lib/libfabric.so.1, a link to libfabric.so.1.29.1, is empty: it cannot be loaded"
    )


@pytest.mark.parametrize(
    ("check", "change", "image"),
    [
        ("user.memlock", {"user": "1000", "files": {"/etc/passwd": "trainer:x:1000:1000::/tmp:/bin/sh\n"}}, "efa"),
        ("nccl.single", {"files": {"/opt/spare/libnccl.so.2": SECOND_NCCL[f"{LIB}/libnccl.so.2"]}}, "torch"),
    ],
)
def test_what_costs_nothing_or_what_the_host_decides_is_a_note(
    check: str, change: dict[str, object], image: str
) -> None:
    assert finding(check, change, image).severity == "note"


def test_an_unsearched_folder_and_the_variable_that_asks_for_the_plugin_are_named() -> None:
    unsearched: dict[str, object] = {"files": {PLUGIN_FOLDERS: None}}
    assert finding("plugin.found", unsearched).actual == (
        "NCCL finds no libnccl-net.so, and so no EFA; "
        "/opt/amazon/ofi-nccl/lib/libnccl-net.so is in a folder that is not searched"
    )
    named_by_variable = finding("plugin.found", {"env": {"NCCL_NET_PLUGIN": "aws-ofi"}})
    assert named_by_variable.actual == (
        "NCCL_NET_PLUGIN=aws-ofi: NCCL finds no libnccl-net-aws-ofi.so, and so no EFA; "
        "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so is there"
    )


def test_what_ends_nccl_comes_before_what_it_goes_on_without() -> None:
    conf = "NCCL_TOPO_FILE=/opt/absent/topo.xml\nNCCL_GRAPH_FILE=/opt/absent/graph.xml\n"
    actual = finding("environment.files", {"files": {"/etc/nccl.conf": conf}}).actual
    assert actual.startswith("/etc/nccl.conf:2: NCCL_GRAPH_FILE=/opt/absent/graph.xml is not there: NCCL ends; ")


def test_a_provider_of_another_abi_matters_where_none_of_its_driver_is_opened() -> None:
    def with_provider(name: str) -> dict[str, object]:
        return {"files": {f"{LIB}/libibverbs/lib{name}-rdmav2.so": {"library": {}}}}

    assert finding("verbs.suffix", with_provider("efa")).severity == "note"
    assert finding("verbs.suffix", with_provider("mlx5")).severity == "warning"


def test_a_variable_that_can_end_a_job_comes_before_one_that_costs_speed() -> None:
    conf = "NCCL_TOPO_FILE=/opt/topo.xml\nNCCL_GRAPH_FILE=/opt/graph.xml\n"
    files = {"/etc/nccl.conf": conf, "/opt/topo.xml": "<system/>", "/opt/graph.xml": "<graphs/>"}
    assert finding("settings.slow", {"files": files}).actual.startswith("/etc/nccl.conf:2: NCCL_GRAPH_FILE=")
