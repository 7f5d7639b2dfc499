"""The versions that probes measured inside an image, from its report."""

import re
from collections.abc import Iterator

from rdma_images.facts import fabric_software
from rdma_images.inspection.inspection import Inspection, mapped_nccl
from rdma_images.inspection.measurements import Measured
from rdma_images.inspection.report import Report

REVISION = "org.opencontainers.image.revision"  # the label
_UPSTREAM = re.compile(r"\d+(\.\d+)*")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def revision(report: Report) -> str:
    """Return the commit that the image's own label names; empty where it names none."""
    return report.inspection.subject.labels.get(REVISION, "") if report.inspection else ""


def platform(report: Report) -> str:
    """Return the platform of the validated image, without variant; empty where unknown."""
    return "/".join(report.inspection.subject.platform.split("/")[:2]) if report.inspection else ""


def is_commit(text: str) -> bool:
    """Return whether a revision is a clean commit, without "-dirty" behind it."""
    return _COMMIT.fullmatch(text) is not None


def versions(report: Report) -> dict[str, str]:
    """Return component -> version, as far as it can be measured inside.

    Where there is no torch, NCCL's one library says which it is, and of CUDA the major: the rest of its CUDA is what
    NVIDIA compiled it with.
    """
    if report.inspection is None:
        return {}
    measured = report.inspection.measured
    by_component = dict(_torch_versions(report.inspection) if measured.torch else _nccl_versions(measured))
    if measured.system and measured.system.python:
        by_component["python"] = measured.system.python
    if plugin := _package_version(measured, "libnccl-ofi"):
        by_component[fabric_software.AWS_OFI_NCCL] = plugin
    release = measured.system.os if measured.system else {}
    if release.get("ID"):
        by_component["base"] = f"{release['ID']}{release.get('VERSION_ID', '')}"
    return by_component


def _torch_versions(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """Yield the versions that importing torch showed."""
    if torch := inspection.measured.torch:
        yield "pytorch", torch.version.partition("+")[0]
        if torch.cuda:
            yield "cuda", torch.cuda
    if nccl := mapped_nccl(inspection):
        yield "nccl", nccl.version


def _nccl_versions(measured: Measured) -> Iterator[tuple[str, str]]:
    """Yield what the banner of the one libnccl says, "2.30.7+cuda13.3"."""
    libraries = list(measured.tree.libraries.nccl.values()) if measured.tree else []
    if len(libraries) == 1 and libraries[0].cuda:
        yield "nccl", libraries[0].version
        yield "cuda", libraries[0].cuda.partition(".")[0]


def _package_version(measured: Measured, name: str) -> str:
    """Return a package's upstream version, "1.21.1" of 1.21.1-1; empty for none."""
    packages = measured.packages
    installed = {**packages.rpm, **packages.dpkg} if packages else {}
    upstream = _UPSTREAM.match(installed.get(name, ""))
    return upstream[0] if upstream else ""
