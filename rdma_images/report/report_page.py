"""Render the report as a page: one HTML file that fetches nothing, for one image or for many."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from rdma_images.core import templates
from rdma_images.core.check import Check
from rdma_images.core.image import FABRIC_TITLES, LABEL_PREFIX
from rdma_images.core.plain import plain
from rdma_images.core.sizes import format_bytes
from rdma_images.inspection.inspection import Inspection, mapped_nccl
from rdma_images.inspection.network_chain import EVIDENCE_TITLES
from rdma_images.inspection.report import Report, shown_outcome
from rdma_images.report import checks_table

TEMPLATE = Path(__file__).with_name("page.html.j2")
SYMBOLS = {"passed": "✓", "failed": "✗", "warned": "!", "noted": "i", "not measured": "?", "skipped": "·"}
DIGEST_START = 19  # characters: sha256: and twelve digits
LABEL_SHARE = 0.035  # of the whole: the least a layer's share is for its name to fit


@dataclass(frozen=True)
class Slice:
    """A layer in the picture: start and width in percent of the bytes to pull."""

    folder: str
    kind: str  # "python", "fabric" or "system": its colour
    start: float
    width: float
    bytes: int
    named: bool


def measured_slices(report: Report) -> list[Slice]:
    """Return the layers of the image, lowest first; empty where they were not read."""
    layers = (report.inspection.measured.layers or ()) if report.inspection else ()
    total = sum(layer.bytes for layer in layers) or 1
    layer_slices, start = [], 0.0
    for layer in layers:
        width = 100 * layer.bytes / total
        folder = layer.largest_folder or "nothing"
        layer_slices.append(
            Slice(plain(_short_folder(folder)), _kind(folder), start, width, layer.bytes, width > 100 * LABEL_SHARE)
        )
        start += width
    return layer_slices


def facts(report: Report) -> list[tuple[str, str]]:
    """Return name and value of what was measured."""
    inspection = report.inspection
    labels = sorted(inspection.subject.labels.items()) if inspection else []
    rows = [
        (
            "meant for",
            f"{inspection.expected.fabric or 'no fabric'}: {inspection.expected.reason}" if inspection else "",
        ),
        ("digest", report.digest),
        ("platform", inspection.subject.platform if inspection else ""),
        *(_measured(inspection) if inspection else ()),
        *(("does not work", text) for name, text in labels if name.startswith(f"{LABEL_PREFIX}.limit.")),
        ("preflight", dict(labels).get(f"{LABEL_PREFIX}.preflight", "")),
        ("suite", report.suite),
    ]
    return [(name, plain(value)) for name, value in rows if value]


def _measured(inspection: Inspection) -> list[tuple[str, str]]:
    """Return the rows that probes have measured."""
    system, torch, tree = inspection.measured.system, inspection.measured.torch, inspection.measured.tree
    nccl, fi_info = mapped_nccl(inspection), (inspection.measured.tools or {}).get("fi_info --version")
    plugin, plugin_file = next(iter(tree.libraries.plugins.items()), ("", None)) if tree else ("", None)
    return [
        ("system", system.os.get("PRETTY_NAME", "") if system else ""),
        ("Python", system.python if system else ""),
        ("PyTorch", torch.version if torch else ""),
        ("NCCL mapped by torch", f"{nccl.version} at {nccl.path}" if nccl else ""),
        ("libfabric", _libfabric(fi_info.stdout) if fi_info else ""),
        ("plugin", plugin),
        ("plugin's interfaces", _interfaces(plugin_file.exports) if plugin_file else ""),
        ("files", f"{tree.files.count:,}" if tree else ""),
        ("unpacked", format_bytes(tree.files.bytes) if tree else ""),
    ]


def _libfabric(output: str) -> str:
    return next((line.partition(": ")[2] for line in output.splitlines() if line.startswith("libfabric: ")), "")


def _interfaces(exports: Mapping[str, Sequence[int]]) -> str:
    names = {"ncclNetPlugin_v": "net", "ncclTunerPlugin_v": "tuner", "ncclGinPlugin_v": "gin", "ncclRmaPlugin_v": "rma"}
    return ", ".join(f"{names.get(kind, kind)} v{'/'.join(map(str, versions))}" for kind, versions in exports.items())


def _kind(folder: str) -> str:
    if "-packages" in folder:
        return "python"
    return "fabric" if folder.startswith("/opt/amazon") else "system"


def _short_folder(folder: str) -> str:
    inside = folder.partition("-packages/")[2]
    return inside.rpartition("/")[2] if inside.startswith("nvidia/cu") else inside or folder


@dataclass(frozen=True)
class ImageColumn:
    """An image of the page."""

    name: str
    title: str  # its target, or the name that somebody else gave it
    versions: str  # its tag or the beginning of its digest; "" of a host
    scenario: str  # the end of its title: the fabric and instance type that it was judged for
    report: Report
    counts: Mapping[str, int]
    facts: Sequence[tuple[str, str]]
    slices: Sequence[Slice]
    pulled_bytes: int  # bytes
    findings: Sequence[Check]  # errors and warnings


@dataclass(frozen=True)
class ValidatorRow:
    """A validator of the page, with each image's check (None where it did not run)."""

    id: str
    title: str
    cells: Sequence[Check | None]


def report_html(reports: Sequence[Report]) -> str:
    """Return the HTML of the reports: images, each with its scenarios, as columns, and validators as rows."""
    by_image: dict[str, list[Report]] = {}
    for report in reports:
        by_image.setdefault(report.image_id or report.ref, []).append(report)
    ordered = [report for image in by_image.values() for report in sorted(image, key=_scenario)]
    columns = [_column(report) for report in ordered]
    scenario_count = sum(bool(column.scenario) for column in columns)
    return _template().render(
        columns=columns,
        groups=_groups(ordered),
        scenarios=scenario_count,
        marks=SYMBOLS,
        state=shown_outcome,
        how=EVIDENCE_TITLES,
        single=len(columns) == 1,
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = templates.environment([TEMPLATE.parent], escape=True)
    environment.filters["size"] = format_bytes
    environment.filters["headline"] = checks_table.headline
    return environment.get_template(TEMPLATE.name)


def _groups(reports: Sequence[Report]) -> dict[str, list[ValidatorRow]]:
    """Return the validators by subject, the first word of their ids, in the order of the suite."""
    titles = {check.id: check.title for report in reports for check in report.checks}
    checks_by_report = [{check.id: check for check in report.checks} for report in reports]
    groups: dict[str, list[ValidatorRow]] = {}
    for name, title in titles.items():
        cells = [checks.get(name) for checks in checks_by_report]
        groups.setdefault(name.partition(".")[0], []).append(ValidatorRow(name, title, cells))
    return groups


def _column(report: Report) -> ImageColumn:
    states = [shown_outcome(check) for check in report.checks]
    counts = {name: states.count(name) for name in SYMBOLS}
    slices = measured_slices(report)
    pulled_bytes = sum(part.bytes for part in slices)
    findings = [check for check in checks_table.findings(report) if check.severity != "note"]
    (title, versions), scenario = _title(report.ref), _scenario(report)
    return ImageColumn(
        f"{report.image_id or report.ref}{scenario}",
        f"{title}{scenario}",
        versions,
        scenario,
        report,
        counts,
        facts(report),
        slices,
        pulled_bytes,
        findings,
    )


def _title(ref: str) -> tuple[str, str]:
    """Return the name of an image and its tag or the beginning of its digest; of a host its address."""
    if "://" in ref:
        return ref, ""
    name, _, digest = ref.partition("@")
    folder, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return f"{folder}{slash}{last}".removeprefix("rdma-images/"), tag or digest[:DIGEST_START]


def _scenario(report: Report) -> str:
    """Return the fabric and the instance type that the report judges for; "" for the image's own."""
    expected = report.inspection.expected if report.inspection else None
    if not expected or not expected.requested_fabric:
        return ""
    fabric = FABRIC_TITLES.get(expected.requested_fabric)
    return f" on {expected.instance or fabric}" if fabric else " without a fabric"
