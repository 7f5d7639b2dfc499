"""libfabric, its efa provider, and the tool that shows them."""

import re

import pytest

from rdma_images.validate.case import Case, missing_in
from rdma_images.validate.measured import Libraries, ToolRun
from rdma_images.validate.plugin import Judge
from validators.toolruns import started, summary

LOADER = "ld.so(8): the order in which the dynamic loader searches"
FI_INFO = "fi_info(1)"
NO_DATA = 61  # what fi_info ends with where a provider has no device


@pytest.fixture
def fi_info(case: Case) -> dict[str, ToolRun]:
    """What fi_info printed; skips where it could not run, which has a check of its own."""
    runs = case.measured.tools or pytest.skip(case.measured.missing.get("tools", "fi_info was not run"))
    if runs["fi_info --version"].rc != 0:
        pytest.skip("fi_info does not run: libfabric.fi-info tells")
    return runs


@pytest.mark.validator("libfabric.found", source=LOADER, fabric="efa")
def test_libfabric_found(libraries: Libraries, judge: Judge) -> None:
    """The loader finds libfabric."""
    answer = libraries.resolved["libfabric.so.1"]
    lacks_another = bool(answer.error) and not answer.error.startswith("libfabric.so.1:")
    judge(
        bool(answer.file) or lacks_another,
        expected="libfabric.so.1",
        found=answer.file or answer.error,
        mend="install libfabric with the EFA installer, keep /etc/ld.so.conf.d/efa.conf, and run ldconfig",
    )


@pytest.mark.validator("libfabric.closure", source=LOADER, fabric="efa")
def test_libfabric_closure(case: Case, libraries: Libraries, judge: Judge) -> None:
    """Every library that libfabric needs is found."""
    paths = case.libraries_named("libfabric.so") or pytest.skip("there is no libfabric: libfabric.found tells")
    found = libraries.resolved["libfabric.so.1"].file or paths[0]
    missing = missing_in(libraries, found)
    judge(
        not missing,
        expected="nothing missing",
        found=f"missing: {', '.join(missing)}" if missing else f"complete for {found}",
        mend=f"install what brings {', '.join(missing)} (rdma-core's libraries come with the EFA installer)",
    )


@pytest.mark.validator(
    "libfabric.single", source="two libfabrics in one process each have their own providers", fabric="efa"
)
def test_libfabric_single(case: Case, libraries: Libraries, judge: Judge) -> None:
    """One libfabric is in the image."""
    found = case.libraries_named("libfabric.so") or pytest.skip("there is no libfabric: libfabric.found tells")
    # The one in use has checks of its own, and so has the one that fi_info takes.
    used = {
        c.libraries.get("libfabric.so.1")
        for path, c in libraries.closures.items()
        if "libnccl" in path or "fi_info" in path
    }
    used |= {libraries.resolved["libfabric.so.1"].file, *(p for p in found if p.startswith("/opt/amazon/efa/"))}
    spare = [path for path in found if path not in used] if used & set(found) else found[1:]
    judge(
        not spare,
        expected="one file",
        found=", ".join(found),
        mend=f"remove {', '.join(spare)} or the package that brings it",
    )


@pytest.mark.validator("libfabric.fi-info", source=FI_INFO, fabric="efa")
def test_fi_info(case: Case, libraries: Libraries, judge: Judge) -> None:
    """fi_info is there and runs."""
    run = started(case, libraries, "fi_info --version", "libfabric.found or libfabric.closure")
    judge(
        run.rc == 0 and "libfabric:" in run.out,
        expected="`fi_info --version` prints libfabric's version",
        found=summary(run),
        mend="install libfabric's tools with the EFA installer and put /opt/amazon/efa/bin on the PATH",
    )


@pytest.mark.validator(
    "libfabric.efa", source="fi_info -l lists the providers that libfabric was built with", fabric="efa"
)
def test_lists_efa(fi_info: dict[str, ToolRun], judge: Judge) -> None:
    """libfabric has the efa provider."""
    run = fi_info["fi_info -l"]
    listed = re.findall(r"^(\S+):$", run.out, re.MULTILINE)
    judge(
        "efa" in listed,
        expected="efa in `fi_info -l`",
        found=", ".join(listed) or summary(run),
        mend="install the EFA installer's libfabric, and leave FI_PROVIDER and FI_PROVIDER_PATH unset",
    )


@pytest.mark.validator("libfabric.device", source="fi_info(1): 61 is FI_ENODATA, no device answers", fabric="efa")
def test_asks_efa(fi_info: dict[str, ToolRun], judge: Judge) -> None:
    """Asking for EFA devices gives an answer, or says that there are none."""
    run = fi_info["fi_info -p efa"]
    judge(
        run.rc == 0 or (run.rc == NO_DATA and "No data available" in run.err),
        expected="domains of EFA, or exit code 61 without a device",
        found=summary(run),
        mend="run `fi_info -p efa -t FI_EP_RDM` in the image with FI_LOG_LEVEL=info",
    )


@pytest.mark.validator("libfabric.same", source=LOADER, fabric="efa")
def test_same_libfabric(libraries: Libraries, fi_info: dict[str, ToolRun], judge: Judge) -> None:
    """What fi_info shows is the libfabric that NCCL's plugin gets."""
    tool = fi_info["fi_info --version"].path
    shown = libraries.closures[tool].libraries.get("libfabric.so.1", "") if tool in libraries.closures else ""
    used = libraries.resolved["libfabric.so.1"].file
    if not shown or not used:
        pytest.skip("fi_info's own libraries could not be read")
    judge(
        shown == used,
        expected=used,
        found=f"{tool} takes {shown}",
        mend="remove the second libfabric, or the RUNPATH that leads fi_info to it",
    )
