"""Reports on the case that was measured in a real image, with checks of every outcome."""

from dataclasses import replace

from rdma_images.core.check import Check
from rdma_images.inspection.report import Report
from tests.support.case_parts import recorded

CASE = recorded()
PASSED = Check("nccl.single", "one libnccl is in the image", "static", "error", "passed", "one file", "/x/libnccl.so.2")
FAILED = replace(PASSED, id="plugin.found", outcome="failed", actual="<script>alert(1)</script>", fix="link it")
WARNED = replace(FAILED, id="size.budget", severity="warning")
SKIPPED = replace(PASSED, id="device.mtu", outcome="skipped", reason="no device", actual="")


def report(*checks: Check) -> Report:
    """Return a report with these checks, of a rehearsal."""
    return Report(
        "a/b:c", "sha256:1", "sha256:2", None, ("efa-installer-1.50.0",), "2026-11-21T09:00:00+00:00", 3.2, checks, CASE
    )
