"""Show what was measured, in the words of a reader. What was not measured is left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rdma_images.core.pipeline import LABEL_PREFIX
from rdma_images.core.plain import plain
from rdma_images.core.sizes import readable
from rdma_images.inspection.inspection import Inspection, mapped_nccl
from rdma_images.inspection.report import Report

LABEL_SHARE = 0.035  # of the whole: the least a layer's share is for its name to fit


@dataclass(frozen=True)
class Slice:
    """A layer in the picture: where it begins and how wide it is, in percent of all bytes to pull."""

    folder: str
    kind: str  # "python", "fabric" or "system": its colour
    start: float
    width: float
    bytes: int
    named: bool


def slices(report: Report) -> list[Slice]:
    """Return the layers of the image, lowest first; empty where they were not read."""
    layers = (report.facts.measured.layers or ()) if report.facts else ()
    whole = sum(layer.bytes for layer in layers) or 1
    layer_slices, start = [], 0.0
    for layer in layers:
        width = 100 * layer.bytes / whole
        folder = layer.mostly or "nothing"
        layer_slices.append(
            Slice(plain(_short(folder)), _kind(folder), start, width, layer.bytes, width > 100 * LABEL_SHARE)
        )
        start += width
    return layer_slices


def facts(report: Report) -> list[tuple[str, str]]:
    """Return name and value of what was measured."""
    case = report.facts
    rows = [
        ("meant for", f"{case.expected.fabric or 'no fabric'}: {case.expected.because}" if case else ""),
        ("digest", report.digest),
        ("platform", case.subject.platform if case else ""),
        *(_measured(case) if case else ()),
        *(("does not work", text) for text in _limits(case.subject.labels if case else {})),
        ("suite", report.suite),
    ]
    return [(name, plain(value)) for name, value in rows if value]


def _limits(labels: Mapping[str, str]) -> list[str]:
    """Return what the image says of itself that it does not do."""
    return [text for name, text in sorted(labels.items()) if name.startswith(f"{LABEL_PREFIX}.limit.")]


def _measured(case: Inspection) -> list[tuple[str, str]]:
    """Return the rows that probes have measured."""
    system, torch, tree = case.measured.system, case.measured.torch, case.measured.tree
    nccl, fi_info = mapped_nccl(case), (case.measured.tools or {}).get("fi_info --version")
    plugin, plugin_file = next(iter(tree.libraries.plugins.items()), ("", None)) if tree else ("", None)
    return [
        ("system", system.os.get("PRETTY_NAME", "") if system else ""),
        ("Python", system.python if system else ""),
        ("PyTorch", torch.version if torch else ""),
        ("NCCL mapped by torch", f"{nccl.version} at {nccl.path}" if nccl else ""),
        ("libfabric", _libfabric(fi_info.out) if fi_info else ""),
        ("plugin", plugin),
        ("plugin's interfaces", _interfaces(plugin_file.exports) if plugin_file else ""),
        ("files", f"{tree.files.count:,}" if tree else ""),
        ("unpacked", readable(tree.files.bytes) if tree else ""),
    ]


def _libfabric(printed: str) -> str:
    return next((line.partition(": ")[2] for line in printed.splitlines() if line.startswith("libfabric: ")), "")


def _interfaces(exports: Mapping[str, Sequence[int]]) -> str:
    names = {"ncclNetPlugin_v": "net", "ncclTunerPlugin_v": "tuner", "ncclGinPlugin_v": "gin", "ncclRmaPlugin_v": "rma"}
    return ", ".join(f"{names.get(kind, kind)} v{'/'.join(map(str, versions))}" for kind, versions in exports.items())


def _kind(folder: str) -> str:
    if "-packages" in folder:
        return "python"
    return "fabric" if folder.startswith("/opt/amazon") else "system"


def _short(folder: str) -> str:
    inside = folder.partition("-packages/")[2]
    return inside.rpartition("/")[2] if inside.startswith("nvidia/cu") else inside or folder
