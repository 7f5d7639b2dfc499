"""What was measured, in the words of a reader.

A report may be of another version, or damaged: what has another form than expected is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rdma_images.model import Report
from rdma_images.plain import plain

NAMED = 0.035  # of the whole: the least a layer's share is for its name to fit
LARGEST = 1 << 63  # bytes: no file system has more

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Slice:
    """A layer in the picture: where it begins and how wide it is, in percent of all bytes to pull."""

    place: str
    kind: str  # "python", "fabric" or "system": its colour
    start: float
    width: float
    bytes: int
    named: bool


def slices(report: Report) -> list[Slice]:
    """The layers of the image, lowest first; empty where they were not read."""
    layers = at(report.facts, list, "measured", "layers") or []
    sizes = [_count(layer, "bytes") for layer in layers]
    whole = sum(sizes) or 1
    found, start = [], 0.0
    for layer, bytes_of in zip(layers, sizes, strict=True):
        width = 100 * bytes_of / whole
        place = at(layer, str, "mostly") or "nothing"
        found.append(Slice(plain(_short(place)), _kind(place), start, width, bytes_of, width > 100 * NAMED))
        start += width
    return found


def facts(report: Report) -> list[tuple[str, str]]:
    """Name and value of what was measured; what was not is left out."""
    measured, torch = at(report.facts, dict, "measured"), at(report.facts, dict, "measured", "torch")
    nccl = next(iter(at(torch, list, "nccl") or []), None)
    plugin, about = next(iter((at(measured, dict, "tree", "libraries", "plugins") or {}).items()), (None, None))
    expected = at(report.facts, dict, "expected")
    files, unpacked = (_count(measured, "tree", "files", name) for name in ("count", "bytes"))
    rows = [
        ("meant for", f"{expected.get('fabric') or 'no fabric'}: {expected.get('because')}" if expected else None),
        ("digest", report.digest),
        ("platform", at(report.facts, str, "subject", "platform")),
        ("system", at(measured, str, "system", "os", "PRETTY_NAME")),
        ("Python", at(measured, str, "system", "python")),
        ("PyTorch", at(torch, str, "version")),
        ("NCCL mapped by torch", f"{at(nccl, str, 'version')} at {at(nccl, str, 'path')}" if nccl else None),
        ("libfabric", _libfabric(at(measured, str, "tools", "fi_info --version", "out") or "")),
        ("plugin", plugin),
        ("plugin's interfaces", _interfaces(at(about, dict, "exports") or {})),
        ("files", f"{files:,}" if files else None),
        ("unpacked", size(unpacked) if unpacked else None),
        ("suite", report.suite),
    ]
    return [(name, plain(str(value))) for name, value in rows if value]


def size(count: int) -> str:
    """Bytes for people: 2.77 GB, 12.9 MB, 93 bytes."""
    for unit, bytes_of in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= bytes_of:
            return f"{count / bytes_of:.3g} {unit}"
    return f"{count} bytes"


def at(data: Any, kind: type[Kind], *steps: str) -> Kind | None:
    """The value at `steps` of nested dicts, None where the way ends or leads to another kind of value."""
    for step in steps:
        data = data.get(step) if isinstance(data, Mapping) else None
    return data if isinstance(data, kind) else None


def _count(data: Any, *steps: str) -> int:
    found = at(data, int, *steps) or 0
    return found if 0 <= found < LARGEST else 0


def _libfabric(printed: str) -> str:
    return next((line.partition(": ")[2] for line in printed.splitlines() if line.startswith("libfabric: ")), "")


def _interfaces(exports: Mapping[str, Any]) -> str:
    names = {"ncclNetPlugin_v": "net", "ncclTunerPlugin_v": "tuner", "ncclGinPlugin_v": "gin", "ncclRmaPlugin_v": "rma"}
    lists = {kind: found for kind, found in exports.items() if isinstance(found, list)}
    return ", ".join(f"{names.get(kind, kind)} v{'/'.join(map(str, found))}" for kind, found in lists.items())


def _kind(place: str) -> str:
    if "-packages" in place:
        return "python"
    return "fabric" if place.startswith("/opt/amazon") else "system"


def _short(place: str) -> str:
    inside = place.partition("-packages/")[2]
    return inside.rpartition("/")[2] if inside.startswith("nvidia/cu") else inside or place
