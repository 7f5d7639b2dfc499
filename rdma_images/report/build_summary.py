"""Show the result of a build: the summary that is printed, and the JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from rdma_images.core import paths
from rdma_images.core.image import BuildRecord, ExistingImage, Image
from rdma_images.core.sizes import format_megabytes
from rdma_images.inspection.report import Report, encode_report
from rdma_images.report.checks_table import counts_text, verdict_style


def summary_text(builds: Sequence[BuildRecord], reports: Sequence[Report], images: Sequence[Image] = ()) -> Text:
    """Return for each image its name, the counts of its checks and its report's path.

    For one of `images` that was added to an image that exists, also the size of the difference.
    """
    onto = {image.id: image.onto for image in images if image.onto}
    by_id = {report.image_id: report for report in reports}
    output = Text(no_wrap=True, overflow="ignore")
    for build in builds:
        report = by_id.get(build.image_id)
        output.append(f"{build.ref}\n", "bold")
        output.append("  checks  ").append(_verdict(report)).append("\n")
        if report:
            page = paths.image_folder(build.image_id) / "report.html"
            output.append(f"  report  {paths.display_path(page)}\n")
            if below := onto.get(build.image_id):
                output.append(f"  onto    {_difference(report, below.base)}\n")
    output.rstrip()
    return output


def as_json(builds: Sequence[BuildRecord], reports: Sequence[Report]) -> str:
    """Return {"builds": […], "reports": […]}, without the measurements."""
    short = [
        {k: v for k, v in encode_report(report).items() if k != "facts"} | {"passed": report.passed}
        for report in reports
    ]
    return json.dumps({"builds": [asdict(build) for build in builds], "reports": short}, indent=2)


def _difference(report: Report, base: ExistingImage) -> str:
    """Return what a node with the lower image pulls, and the faults before."""
    layers = report.inspection.subject.layers if report.inspection else []
    if tuple(layers[: len(base.layers)]) != base.layers:
        return f"{base.ref}: its layers are not below those of the image"
    measured = (report.inspection.measured.layers if report.inspection else None) or ()
    above = {layer.digest: layer.bytes for layer in measured if layer.digest not in base.layers}
    size = f", {format_megabytes(sum(above.values()))} to pull" if measured else ""
    faults = f"; faults of its own: {', '.join(report.base_faults)}" if report.base_faults else ""
    added_layers = len(layers) - len(base.layers)
    return f"{base.ref}: its {len(base.layers)} layers are unchanged, {added_layers} above them{size}{faults}"


def _verdict(report: Report | None) -> Text:
    """Return the counts of the checks' outcomes, and for a rehearsal what it lacks."""
    if report is None:
        return Text("none: not validated", "yellow")
    verdict = Text(counts_text(report), verdict_style(report))
    if report.stand_ins:
        verdict.append(f"; a rehearsal without {', '.join(report.stand_ins)}", "yellow")
    return verdict
