"""Judge a run of one of the fabric's tools."""

import pytest

from rdma_images.inspection.inspection import Inspection, missing_in
from rdma_images.inspection.measurements import Libraries
from rdma_images.inspection.values import ToolRun


def tool_run(inspection: Inspection, libraries: Libraries, command: str, reported_by: str) -> ToolRun:
    """Return the run of `command`; skips where none was run, or where a library was missing.

    That is reported by the check `reported_by`.
    """
    tool = command.partition(" ")[0]
    runs = inspection.measured.tools or pytest.skip(inspection.measured.missing.get("tools", f"{tool} was not run"))
    run = runs[command]
    if run.path and run.rc == 127 and missing_in(libraries, run.path):
        pytest.skip(f"it lacks a library: see {reported_by}")
    return run


def summary(run: ToolRun) -> str:
    """Return one line of what a tool did."""
    if not run.path:
        return "there is no such tool in the image"
    if run.timed_out:
        return f"{run.path} did not end in {run.seconds:.0f} s"
    lines = (run.err or run.out).strip().splitlines()
    return f"{run.path} ended with {run.rc}" + (f": {lines[-1][:300]}" if lines else "")
