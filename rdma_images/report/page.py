"""Render the report as a page: one HTML file that fetches nothing, for one image or for many."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from rdma_images.core import templates
from rdma_images.core.pipeline import Check
from rdma_images.core.sizes import readable
from rdma_images.inspection.chain import HOW
from rdma_images.inspection.report import Report, shown_outcome
from rdma_images.report import page_facts, table

TEMPLATE = Path(__file__).with_name("page.html.j2")
OUTCOMES = {"fabric": "passed", "tcp": "failed", "end": "failed", "unknown": "warned"}  # of a chain: its colour
MARKS = {"passed": "✓", "failed": "✗", "warned": "!", "noted": "i", "skipped": "·"}
# The title of each subject, the first word of a validator's id, in the order of the page.
SUBJECTS = {
    "measured": "Measuring",
    "chain": "From NCCL to the network",
    "nccl": "NCCL",
    "plugin": "NCCL's network plugin",
    "libfabric": "libfabric",
    "verbs": "Verbs",
    "erdma": "eRDMA",
    "transports": "Networks beside NCCL's",
    "libraries": "Libraries that a job opens",
    "environment": "Environment",
    "settings": "Settings in files and scripts",
    "torch": "PyTorch",
    "cuda": "CUDA",
    "packages": "Python packages",
    "sagemaker": "SageMaker",
    "user": "The image's user",
    "label": "Labels",
    "layers": "Layers",
    "files": "Files",
    "size": "Size",
    "device": "Devices",
    "gpu": "GPUs",
    "datapath": "Data path between emulated machines",
}


@dataclass(frozen=True)
class ImageColumn:
    """An image of the page."""

    name: str
    title: str  # its target, or the name that somebody else gave it
    versions: str  # its tag
    report: Report
    counts: Mapping[str, int]
    facts: Sequence[tuple[str, str]]
    slices: Sequence[page_facts.Slice]
    pulled: int  # bytes
    findings: Sequence[Check]  # errors and warnings


@dataclass(frozen=True)
class ValidatorRow:
    """A validator of the page, with each image's check (None where it did not run)."""

    id: str
    title: str
    cells: Sequence[Check | None]


def report_page(reports: Sequence[Report]) -> str:
    """Return the HTML of the reports, images as columns and validators as rows."""
    columns = [_column(report) for report in reports]
    groups = _groups(reports)
    return _template().render(
        columns=columns,
        groups=groups,
        marks=MARKS,
        state=shown_outcome,
        outcomes=OUTCOMES,
        how=HOW,
        single=len(columns) == 1,
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = templates.environment([TEMPLATE.parent], escape=True)
    environment.filters["size"] = readable
    environment.filters["headline"] = table.headline
    return environment.get_template(TEMPLATE.name)


def _groups(reports: Sequence[Report]) -> list[tuple[str, list[ValidatorRow]]]:
    """Return the validators by subject, in the order of the suite."""
    order = list(dict.fromkeys(check.id for report in reports for check in report.checks))
    checks_by_report = [{check.id: check for check in report.checks} for report in reports]
    groups: dict[str, list[ValidatorRow]] = {}
    for name in order:
        cells = [checks.get(name) for checks in checks_by_report]
        title = next(check.title for check in cells if check)
        subject = name.split(".")[0]
        groups.setdefault(SUBJECTS.get(subject, subject), []).append(ValidatorRow(name, title, cells))
    subjects = list(SUBJECTS.values())
    return sorted(groups.items(), key=lambda pair: subjects.index(pair[0]) if pair[0] in subjects else len(subjects))


def _column(report: Report) -> ImageColumn:
    states = [shown_outcome(check) for check in report.checks]
    counts = {name: states.count(name) for name in MARKS}
    slices = page_facts.slices(report)
    pulled = sum(part.bytes for part in slices)
    shown = [check for check in table.findings(report) if check.severity != "note"]
    title, _, tag = report.ref.rpartition(":")
    title = title.removeprefix("rdma-images/") or tag
    return ImageColumn(
        report.image_id or report.ref, title, tag, report, counts, page_facts.facts(report), slices, pulled, shown
    )
