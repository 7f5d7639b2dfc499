"""What the probes measured inside an image, out of its report."""

from collections.abc import Mapping
from typing import Any

from rdma_images.model import Report


def probe(report: Report, name: str) -> Mapping[str, Any]:
    """What one probe returned; empty where it did not run, or found nothing to measure."""
    found = report.facts.get("measured")
    value = found.get(name) if isinstance(found, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def versions(report: Report) -> dict[str, str]:
    """Component -> version, as far as it can be told from inside.

    Where there is no torch, NCCL's one library says which it is, and of CUDA the major: the rest of its CUDA is what
    NVIDIA compiled it with.
    """
    torch, system = probe(report, "torch"), probe(report, "system")
    found = {} if torch else _of_nccl(report)
    if torch.get("version"):
        found["pytorch"] = torch["version"].partition("+")[0]
    if torch.get("cuda"):
        found["cuda"] = torch["cuda"]
    if torch.get("nccl"):
        found["nccl"] = torch["nccl"][0]["version"]
    if system.get("python"):
        found["python"] = system["python"]
    release = system.get("os") or {}
    if release.get("ID"):
        found["base"] = f"{release['ID']}{release.get('VERSION_ID', '')}"
    return found


def _of_nccl(report: Report) -> dict[str, str]:
    """What the banner of libnccl says, "2.30.7+cuda13.3"; nothing where there are several, or none."""
    libraries = probe(report, "tree").get("libraries") or {}
    banners = [library.get("banner") or "" for library in (libraries.get("nccl") or {}).values()]
    version, plus, cuda = (banners[0] if len(banners) == 1 else "").partition("+cuda")
    return {"nccl": version, "cuda": cuda.partition(".")[0]} if plus else {}
