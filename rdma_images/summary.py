"""What a build came to, for people and for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from rdma_images import paths
from rdma_images.model import Build, Report


def table(built: Sequence[Build], reports: Sequence[Report]) -> Table:
    """A line an image: its name, what its checks said, and where the proof is."""
    shown = Table("image", "checks", "report", box=None, pad_edge=False, header_style="bold")
    by_id = {report.image_id: report for report in reports}
    for made in built:
        report = by_id.get(made.image_id)
        page = paths.image_folder(made.image_id) / "report.html"
        where = str(page.relative_to(paths.PROJECT)) if report else ""
        shown.add_row(Text(made.ref, overflow="fold"), _verdict(report), Text(where, overflow="fold"))
    return shown


def as_json(built: Sequence[Build], reports: Sequence[Report]) -> str:
    """{"builds": […], "reports": […]}, the reports without what was measured: report.json has that."""
    short = [
        {k: v for k, v in asdict(report).items() if k != "facts"} | {"passed": report.passed} for report in reports
    ]
    return json.dumps({"builds": [asdict(made) for made in built], "reports": short}, indent=2)


def _verdict(report: Report | None) -> Text:
    if report is None:
        return Text("not validated", style="yellow")
    failed = sum(check.outcome == "failed" for check in report.checks)
    if not report.passed:
        return Text(f"{failed} failed", style="bold red")
    passed = sum(check.outcome == "passed" for check in report.checks)
    rehearsal = ", a rehearsal" if report.rehearsal else ""
    return Text(f"{passed} passed{rehearsal}", style="yellow" if report.rehearsal else "green")
