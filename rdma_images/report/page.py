"""The report as a page: one HTML file that fetches nothing, for one image or for many."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from rdma_images.model import Check, Report
from rdma_images.report.table import state

TEMPLATE = Path(__file__).with_name("page.html.j2")
MARKS = {"passed": "✓", "failed": "✗", "warned": "!", "skipped": "·"}
SUBJECTS = {
    "nccl": "NCCL",
    "erdma": "eRDMA",
    "plugin": "NCCL's network plugin",
    "torch": "PyTorch",
    "libfabric": "libfabric",
    "verbs": "Verbs",
    "cuda": "CUDA",
    "environment": "Environment",
    "label": "Labels",
    "layers": "Layers",
    "files": "Files",
    "size": "Size",
    "device": "Devices",
    "gpu": "GPUs",
}
NAMED = 0.035  # of the whole: the least a layer's share is for its name to fit


@dataclass(frozen=True)
class Slice:
    """A layer in the picture: where it begins and how wide it is, in percent of all bytes to pull."""

    place: str
    kind: str  # "python", "fabric" or "system": its colour
    start: float
    width: float
    bytes: int
    named: bool


@dataclass(frozen=True)
class Column:
    """An image of the page."""

    name: str
    title: str  # its target, or the name that somebody else gave it
    versions: str  # its tag
    report: Report
    counts: Mapping[str, int]
    facts: Sequence[tuple[str, str]]
    slices: Sequence[Slice]
    pulled: int  # bytes


@dataclass(frozen=True)
class Line:
    """A validator of the page, with each image's check (None where it did not run)."""

    id: str
    title: str
    cells: Sequence[Check | None]


def page(reports: Sequence[Report]) -> str:
    """The HTML of the reports, images as columns and validators as rows."""
    columns = [_column(report) for report in reports]
    groups = _groups(reports)
    return _template().render(columns=columns, groups=groups, marks=MARKS, state=state, single=len(columns) == 1)


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["size"] = size
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def size(count: int) -> str:
    """Bytes for people: 2.77 GB, 12.9 MB, 93 bytes."""
    for unit, bytes_of in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= bytes_of:
            return f"{count / bytes_of:.3g} {unit}"
    return f"{count} bytes"


def _groups(reports: Sequence[Report]) -> list[tuple[str, list[Line]]]:
    """The validators by subject, in the order of the suite."""
    order = list(dict.fromkeys(check.id for report in reports for check in report.checks))
    found = [{check.id: check for check in report.checks} for report in reports]
    groups: dict[str, list[Line]] = {}
    for name in order:
        cells = [checks.get(name) for checks in found]
        title = next(check.title for check in cells if check)
        subject = name.split(".")[0]
        groups.setdefault(SUBJECTS.get(subject, subject), []).append(Line(name, title, cells))
    known = list(SUBJECTS.values())
    return sorted(groups.items(), key=lambda pair: known.index(pair[0]) if pair[0] in known else len(known))


def _column(report: Report) -> Column:
    states = [state(check) for check in report.checks]
    counts = {name: states.count(name) for name in MARKS}
    slices = _slices(report)
    pulled = sum(part.bytes for part in slices)
    title, _, tag = report.ref.rpartition(":")
    title = title.removeprefix("rdma-images/") or tag
    return Column(report.image_id or report.ref, title, tag, report, counts, _facts(report), slices, pulled)


def _slices(report: Report) -> list[Slice]:
    layers = _at(report.facts, "measured", "layers") or []
    whole = sum(layer["bytes"] for layer in layers) or 1
    slices, start = [], 0.0
    for layer in layers:
        width = 100 * layer["bytes"] / whole
        place = layer["mostly"] or "nothing"
        slices.append(Slice(_short(place), _kind(place), start, width, layer["bytes"], width > 100 * NAMED))
        start += width
    return slices


def _kind(place: str) -> str:
    if "-packages" in place:
        return "python"
    return "fabric" if place.startswith("/opt/amazon") else "system"


def _short(place: str) -> str:
    inside = place.partition("-packages/")[2]
    return inside.rpartition("/")[2] if inside.startswith("nvidia/cu") else inside or place


def _facts(report: Report) -> list[tuple[str, str]]:
    """What was measured, in the words of a reader; what was not is left out."""
    measured, subject, expected = (_at(report.facts, part) for part in ("measured", "subject", "expected"))
    torch, libraries = _at(measured, "torch"), _at(measured, "tree", "libraries")
    nccl = (_at(torch, "nccl") or [{}])[0]
    plugin = next(iter((_at(libraries, "plugins") or {}).items()), None)
    fi_info = str(_at(measured, "tools", "fi_info --version", "out") or "")
    libfabric = next((line.partition(": ")[2] for line in fi_info.splitlines() if line.startswith("libfabric: ")), "")
    rows = [
        ("meant for", f"{expected.get('fabric') or 'no fabric'}: {expected.get('because')}" if expected else None),
        ("digest", report.digest),
        ("platform", _at(subject, "platform")),
        ("system", _at(measured, "system", "os", "PRETTY_NAME")),
        ("Python", _at(measured, "system", "python")),
        ("PyTorch", _at(torch, "version")),
        ("NCCL mapped by torch", f"{nccl.get('version')} at {nccl.get('path')}" if nccl else None),
        ("libfabric", libfabric),
        ("plugin", plugin[0] if plugin else None),
        ("plugin's interfaces", _interfaces(plugin[1]) if plugin else None),
        ("files", f"{files:,}" if (files := _at(measured, "tree", "files", "count")) else None),
        ("unpacked", size(unpacked) if (unpacked := _at(measured, "tree", "files", "bytes")) else None),
        ("suite", report.suite),
    ]
    return [(name, str(value)) for name, value in rows if value]


def _interfaces(plugin: Mapping[str, Any]) -> str:
    exports: Mapping[str, list[int]] = plugin.get("exports") or {}
    names = {"ncclNetPlugin_v": "net", "ncclTunerPlugin_v": "tuner", "ncclGinPlugin_v": "gin", "ncclRmaPlugin_v": "rma"}
    return ", ".join(f"{names.get(kind, kind)} v{'/'.join(map(str, found))}" for kind, found in exports.items())


def _at(data: Any, *steps: str) -> Any:
    """The value at `steps` of nested dicts, None where the way ends."""
    for step in steps:
        data = data.get(step) if isinstance(data, Mapping) else None
    return data
