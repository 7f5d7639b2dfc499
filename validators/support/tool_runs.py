"""Judge runs of the fabric's tools, and what SageMaker's toolkit brings."""

from rdma_images.inspection.inspection import Inspection, missing_in
from rdma_images.inspection.measurements import Libraries, MeasuredPackages
from rdma_images.inspection.values import ToolRun
from rdma_images.validate.validator import not_measured

TOOLKIT = "sagemaker-training"
NO_PACKAGES = "no packages were read"


def tool_run(inspection: Inspection, libraries: Libraries, command: str, reported_by: str) -> ToolRun | str:
    """Return the run of `command`, or why it is not judged.

    A command is not judged if it was not run, or if a library was missing, which the check `reported_by` reports.
    """
    tool = command.partition(" ")[0]
    if not inspection.measured.tools:
        return inspection.measured.missing.get("tools", f"{tool} was not run")
    run = inspection.measured.tools[command]
    lacks_library = run.path and run.exit_code == 127 and missing_in(libraries, run.path)
    return f"it lacks a library: see {reported_by}" if lacks_library else run


def summary(run: ToolRun) -> str:
    """Return one line of what a tool did; leave the validator where the clock ended it."""
    if not run.path:
        return "there is no such tool in the image"
    if run.timed_out:
        not_measured(f"{run.path} was stopped after {run.seconds:.0f} s")
    lines = (run.stderr or run.stdout).strip().splitlines()
    return f"{run.path} ended with {run.exit_code}" + (f": {lines[-1][:300]}" if lines else "")


def toolkits(packages: MeasuredPackages) -> list[str]:
    """Return each installed toolkit: version and folder."""
    return [
        f"{TOOLKIT} {versions[TOOLKIT]} in {folder}"
        for folder, versions in packages.wheels.items()
        if TOOLKIT in versions
    ]
