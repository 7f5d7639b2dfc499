"""What the probes measured inside an image, out of its report."""

import re
from collections.abc import Mapping
from typing import Any

from rdma_images.model import Report

REVISION = "org.opencontainers.image.revision"  # the label
_UPSTREAM = re.compile(r"\d+(\.\d+)*")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def probe(report: Report, name: str) -> Mapping[str, Any]:
    """What one probe returned; empty where it did not run, or found nothing to measure."""
    found = report.facts.get("measured")
    value = found.get(name) if isinstance(found, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def revision(report: Report) -> str:
    """The commit that the image's own label names; empty where it names none."""
    labels = _subject(report).get("labels")
    return str(labels.get(REVISION) or "") if isinstance(labels, Mapping) else ""


def platform(report: Report) -> str:
    """The platform of the image that was validated, without its variant; empty where the report does not say."""
    return "/".join(str(_subject(report).get("platform") or "").split("/")[:2])


def _subject(report: Report) -> Mapping[str, Any]:
    """What the engine said of the image."""
    found = report.facts.get("subject")
    return found if isinstance(found, Mapping) else {}


def is_commit(found: str) -> bool:
    """Whether a revision is a commit alone: with "-dirty" behind it, more went in than anybody can look up."""
    return _COMMIT.fullmatch(found) is not None


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
    if plugin := _of_package(report, "libnccl-ofi"):
        found["aws-ofi-nccl"] = plugin
    release = system.get("os") or {}
    if release.get("ID"):
        found["base"] = f"{release['ID']}{release.get('VERSION_ID', '')}"
    return found


def _of_package(report: Report, name: str) -> str:
    """The upstream version of a distribution's package, "1.21.1" of 1.21.1-1; empty where it is not installed."""
    packages = probe(report, "packages")
    installed = {**packages.get("rpm", {}), **packages.get("dpkg", {})}
    told = _UPSTREAM.match(installed.get(name, ""))
    return told[0] if told else ""


def _of_nccl(report: Report) -> dict[str, str]:
    """What the banner of libnccl says, "2.30.7+cuda13.3"; nothing where there are several, or none."""
    libraries = probe(report, "tree").get("libraries") or {}
    banners = [library.get("banner") or "" for library in (libraries.get("nccl") or {}).values()]
    version, plus, cuda = (banners[0] if len(banners) == 1 else "").partition("+cuda")
    return {"nccl": version, "cuda": cuda.partition(".")[0]} if plus else {}
