"""What a run of one of the fabric's tools comes to."""

from rdma_images.validate.measured import ToolRun


def summary(run: ToolRun) -> str:
    """One line of what a tool did."""
    if not run.path:
        return "there is no such tool in the image"
    if run.timed_out:
        return f"{run.path} did not end in {run.seconds:.0f} s"
    lines = (run.err or run.out).strip().splitlines()
    return f"{run.path} ended with {run.rc}" + (f": {lines[-1][:300]}" if lines else "")
