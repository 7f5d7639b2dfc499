"""What the validators of libfabric make of tools that run and of files that lie elsewhere, in the real case."""

import pytest

from tests.support.changed_case import Changes, check_outcome

EFA = "/opt/amazon/efa"
FABRIC, TOOL, PLUGIN = (
    f"{EFA}/lib/libfabric.so.1.27.0",
    f"{EFA}/bin/fi_info",
    "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so",
)
OTHER, PROVIDER, ELSEWHERE = "/opt/other/libfabric.so.1.9.0", f"{EFA}/lib/libfabric/libx-fi.so", "/opt/p/libx-fi.so"
FILE = {"size": 1, "target": ""}
LACKS = {"missing": ["libgone.so.9"]}


@pytest.mark.parametrize(
    ("run", "check", "outcome"),
    [
        ({"fi_info --version": {"rc": 1}}, "libfabric.fi-info", f"failed: {TOOL} ended with 1: libfabric api: 2.1"),
        ({"fi_info --version": {"rc": 1}}, "libfabric.device", "skipped: fi_info does not run"),
        ({"fi_info --version": {"out": "2.1.0\n"}}, "libfabric.fi-info", "failed"),
        ({"fi_info -p efa": {"rc": 0, "err": ""}}, "libfabric.device", "passed"),
        # As libfabric 1.17's fi_info says it; later ones say what -61 is.
        ({"fi_info -p efa": {"err": "fi_getinfo: -61"}}, "libfabric.device", "passed"),
        ({"fi_info -p efa": {"err": "Killed"}}, "libfabric.device", "failed"),
        ({"fi_info -p efa": {"rc": 1}}, "libfabric.device", f"failed: {TOOL} ended with 1: fi_getinfo: -61 (No data"),
    ],
)
def test_what_fi_info_does(run: Changes, check: str, outcome: str) -> None:
    assert check_outcome(check, tools=run).startswith(outcome)


@pytest.mark.parametrize(
    ("rc", "lacks", "outcome"),
    [
        (127, LACKS, "skipped: it lacks a library: see chain.holds"),
        (127, {}, f"failed: {TOOL} ended with 127"),
        (1, LACKS, f"failed: {TOOL} ended with 1"),
    ],
)
def test_a_tool_that_lacks_a_library_is_reported_once(rc: int, lacks: Changes, outcome: str) -> None:
    changes = {"tools": {"fi_info --version": {"rc": rc}}, "closures": {TOOL: lacks}}
    assert check_outcome("libfabric.fi-info", **changes).startswith(outcome)


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"closures": {TOOL: {"libraries": {"libfabric.so.1": OTHER}}}}, f"failed: {TOOL} takes {OTHER}"),
        ({"closures": {TOOL: None}}, "skipped: fi_info's own libraries"),
        ({"resolved": {"libfabric.so.1": {"path": "", "file": ""}}}, "skipped: fi_info's own libraries"),
    ],
)
def test_fi_info_shows_what_is_used(changes: dict[str, Changes], outcome: str) -> None:
    assert check_outcome("libfabric.same", **changes).startswith(outcome)


@pytest.mark.parametrize(
    ("requester", "outcome"),
    [
        (TOOL, "passed"),
        (PLUGIN, "passed"),
        (
            "/opt/venv/lib/python3.13/site-packages/torch/lib/libtorch_cuda.so",
            f"failed: beside the libfabric in use there is {OTHER}",
        ),
    ],
)
def test_a_second_libfabric_that_another_check_reports(requester: str, outcome: str) -> None:
    closures = {requester: {"libraries": {"libfabric.so.1": OTHER}}}
    assert check_outcome("libfabric.single", files={OTHER: FILE}, closures=closures) == outcome


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "passed"),
        (
            {"closures": {PROVIDER: LACKS}},
            f"failed: libfabric goes without {PROVIDER}, which finds no libgone.so.9",
        ),
        ({"closures": {PROVIDER: {"faults": ["undefined symbol: x"]}}}, "failed: undefined symbol: x"),
        ({"environment": {"FI_PROVIDER_PATH": f"{EFA}/lib/libfabric:/opt/q"}}, "passed"),
        ({"environment": {"FI_PROVIDER_PATH": "/opt/q"}}, "left out"),
        (
            {"environment": {"FI_PROVIDER_PATH": "@/opt/p"}},
            f"failed: libfabric goes without {ELSEWHERE}, which finds no libgone.so.9",
        ),
        (
            {"environment": {"FI_PROVIDER_PATH": f"/opt/q:+{ELSEWHERE}"}},
            f"failed: libfabric goes without {ELSEWHERE}, which finds no libgone.so.9",
        ),
    ],
)
def test_the_providers_that_libfabric_opens(changes: dict[str, Changes], outcome: str) -> None:
    beside = PROVIDER.replace("libx-fi.so", "libhelper.so")  # no provider, and a link to one is no second
    files = {
        PROVIDER: FILE,
        ELSEWHERE: FILE,
        beside: FILE,
        PROVIDER.replace("x-fi", "y-fi"): {"size": 1, "target": PROVIDER},
    }
    closures = {ELSEWHERE: LACKS, beside: LACKS, PROVIDER.replace("x-fi", "y-fi"): LACKS, **changes.get("closures", {})}
    actual = check_outcome("libfabric.providers", files=files, **{**changes, "closures": closures})
    assert actual.startswith(outcome)
