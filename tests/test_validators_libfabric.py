"""What the validators of libfabric make of tools that run and of files that lie elsewhere, in the real case."""

import json
from typing import Any

import pytest

from rdma_images.core.case import Case
from tests import case_parts, suite_here

EFA = "/opt/amazon/efa"
FABRIC, TOOL, PLUGIN = (
    f"{EFA}/lib/libfabric.so.1.27.0",
    f"{EFA}/bin/fi_info",
    "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so",
)
OTHER, PROVIDER, ELSEWHERE = "/opt/other/libfabric.so.1.9.0", f"{EFA}/lib/libfabric/libx-fi.so", "/opt/p/libx-fi.so"
FILE = {"size": 1, "target": ""}
LACKS = {"missing": ["libgone.so.9"]}

Changes = dict[str, Any]  # what replaces a part of the case, by the steps to it: "tools/fi_info -l/rc"


def said(**changes: Changes) -> dict[str, str]:
    """What becomes of each check of libfabric: "passed", or the outcome with its words."""
    data = json.loads(case_parts.RECORDED.read_text())
    places = {"tools": data["measured"]["tools"], "environment": data["subject"]["environment"]}
    places |= {"closures": data["measured"]["tree"]["libraries"]["closures"]}
    places |= {"resolved": data["measured"]["tree"]["libraries"]["resolved"]}
    places |= {"files": data["measured"]["tree"]["files"]["libraries"]}
    for name, values in changes.items():
        for key, value in values.items():
            known = places[name].get(key)
            places[name][key] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
            if value is None:
                del places[name][key]
    found = suite_here.checks(Case.model_validate(data))
    return {
        name: check.outcome if check.outcome == "passed" else f"{check.outcome}: {check.reason or check.found}"
        for name, check in found.items()
        if name.startswith("libfabric.")
    }


def test_the_real_image_passes() -> None:
    found = said()
    skipped = {name for name, outcome in found.items() if outcome != "passed"}
    assert skipped == {"libfabric.providers"}
    assert len(found) == 8


@pytest.mark.parametrize(
    ("run", "check", "outcome"),
    [
        ({"fi_info --version": {"rc": 1}}, "libfabric.fi-info", f"failed: {TOOL} ended with 1: libfabric api: 2.1"),
        ({"fi_info --version": {"rc": 1}}, "libfabric.efa", "skipped: fi_info does not run"),
        ({"fi_info --version": {"out": "2.1.0\n"}}, "libfabric.fi-info", "failed"),
        ({"fi_info -p efa": {"rc": 0, "err": ""}}, "libfabric.device", "passed"),
        ({"fi_info -p efa": {"err": "fi_getinfo: -61"}}, "libfabric.device", "failed"),
        ({"fi_info -p efa": {"rc": 1}}, "libfabric.device", f"failed: {TOOL} ended with 1: fi_getinfo: -61 (No data"),
        ({"fi_info -l": {"out": "xefa:\ntcp:\n"}}, "libfabric.efa", "failed: xefa, tcp"),
    ],
)
def test_what_fi_info_does(run: Changes, check: str, outcome: str) -> None:
    assert said(tools=run)[check].startswith(outcome)


@pytest.mark.parametrize(
    ("rc", "lacks", "outcome"),
    [
        (127, LACKS, "skipped: it lacks a library: see libfabric.found"),
        (127, {}, f"failed: {TOOL} ended with 127"),
        (1, LACKS, f"failed: {TOOL} ended with 1"),
    ],
)
def test_a_tool_that_lacks_a_library_is_told_once(rc: int, lacks: Changes, outcome: str) -> None:
    found = said(tools={"fi_info --version": {"rc": rc}}, closures={TOOL: lacks})
    assert found["libfabric.fi-info"].startswith(outcome)


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"closures": {TOOL: {"libraries": {"libfabric.so.1": OTHER}}}}, f"failed: {TOOL} takes {OTHER}"),
        ({"closures": {TOOL: None}}, "skipped: fi_info's own libraries"),
        ({"resolved": {"libfabric.so.1": {"path": "", "file": ""}}}, "skipped: fi_info's own libraries"),
    ],
)
def test_fi_info_shows_what_is_used(changes: dict[str, Changes], outcome: str) -> None:
    assert said(**changes)["libfabric.same"].startswith(outcome)


@pytest.mark.parametrize(
    ("of", "outcome"),
    [
        (TOOL, "passed"),
        (PLUGIN, "passed"),
        ("/opt/venv/lib/python3.13/site-packages/torch/lib/libtorch_cuda.so", f"failed: {FABRIC}, {OTHER}"),
    ],
)
def test_a_second_libfabric_that_another_check_reports(of: str, outcome: str) -> None:
    closures = {of: {"libraries": {"libfabric.so.1": OTHER}}}
    assert said(files={OTHER: FILE}, closures=closures)["libfabric.single"] == outcome


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "passed"),
        ({"closures": {PROVIDER: LACKS}}, f"failed: {PROVIDER} lacks libgone.so.9"),
        ({"closures": {PROVIDER: {"faults": ["undefined symbol: x"]}}}, "failed: undefined symbol: x"),
        ({"environment": {"FI_PROVIDER_PATH": f"{EFA}/lib/libfabric:/opt/q"}}, "passed"),
        ({"environment": {"FI_PROVIDER_PATH": "/opt/q"}}, "skipped"),
        ({"environment": {"FI_PROVIDER_PATH": "@/opt/p"}}, f"failed: {ELSEWHERE} lacks libgone.so.9"),
        ({"environment": {"FI_PROVIDER_PATH": f"/opt/q:+{ELSEWHERE}"}}, f"failed: {ELSEWHERE} lacks libgone.so.9"),
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
    found = said(files=files, **{**changes, "closures": closures})
    assert found["libfabric.providers"].startswith(outcome)
