"""Show the result of a build: the summary that is printed, and the JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from rdma_images.core import paths
from rdma_images.core.pipeline import Build
from rdma_images.inspection.report import Report, encode_report
from rdma_images.report.table import counts_text, verdict_style


def summary_text(builds: Sequence[Build], reports: Sequence[Report]) -> Text:
    """Return three lines for each image: its name, the counts of its checks, and the path of its report."""
    by_id = {report.image_id: report for report in reports}
    shown = Text(no_wrap=True, overflow="ignore")
    for build in builds:
        report = by_id.get(build.image_id)
        shown.append(f"{build.ref}\n", "bold")
        shown.append("  checks  ").append(_verdict(report)).append("\n")
        if report:
            page = paths.image_folder(build.image_id) / "report.html"
            shown.append(f"  report  {paths.shown(page)}\n")
    shown.rstrip()
    return shown


def as_json(builds: Sequence[Build], reports: Sequence[Report]) -> str:
    """Return {"builds": […], "reports": […]}; the measurements themselves are only in report.json."""
    short = [
        {k: v for k, v in encode_report(report).items() if k != "facts"} | {"passed": report.passed}
        for report in reports
    ]
    return json.dumps({"builds": [asdict(build) for build in builds], "reports": short}, indent=2)


def _verdict(report: Report | None) -> Text:
    """Return the counts of the checks' outcomes, and for a rehearsal what it lacks."""
    if report is None:
        return Text("none: not validated", "yellow")
    verdict = Text(counts_text(report), verdict_style(report))
    if report.rehearsal:
        verdict.append(f"; a rehearsal without {', '.join(report.rehearsal)}", "yellow")
    return verdict
