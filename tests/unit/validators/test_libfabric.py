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
LACKS = {"missing": ["libgone.so.9"]}


@pytest.mark.parametrize(
    ("run", "check", "outcome"),
    [
        ({"fi_info --version": {"exit_code": 1}}, "libfabric.fi-info", f"failed: {TOOL} ended with 1: libfabric api:"),
        ({"fi_info --version": {"exit_code": 1}}, "libfabric.device", "skipped: fi_info does not run"),
        ({"fi_info --version": {"stdout": "2.1.0\n"}}, "libfabric.fi-info", "failed"),
        ({"fi_info -p efa": {"exit_code": 0, "stderr": ""}}, "libfabric.device", "passed"),
        # As libfabric 1.17's fi_info says it; later ones say what -61 is.
        ({"fi_info -p efa": {"stderr": "fi_getinfo: -61"}}, "libfabric.device", "passed"),
        ({"fi_info -p efa": {"stderr": "Killed"}}, "libfabric.device", "failed"),
        ({"fi_info -p efa": {"exit_code": 1}}, "libfabric.device", f"failed: {TOOL} ended with 1: fi_getinfo: -61 (No"),
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
    changes = {"tools": {"fi_info --version": {"exit_code": rc}}, "closures": {TOOL: lacks}}
    assert check_outcome("libfabric.fi-info", **changes).startswith(outcome)
