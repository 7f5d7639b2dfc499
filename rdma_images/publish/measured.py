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
    """Component -> version, as far as it can be told from inside."""
    found: dict[str, str] = {}
    torch, system = probe(report, "torch"), probe(report, "system")
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
