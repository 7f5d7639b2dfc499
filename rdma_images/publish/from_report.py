"""What the probes measured inside an image, out of its report."""

import re
from collections.abc import Iterator

from rdma_images.facts import aws_ofi_nccl
from rdma_images.inspection.inspection import Case, mapped_nccl
from rdma_images.inspection.measurements import Measured
from rdma_images.inspection.report import Report

REVISION = "org.opencontainers.image.revision"  # the label
_UPSTREAM = re.compile(r"\d+(\.\d+)*")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def revision(report: Report) -> str:
    """The commit that the image's own label names; empty where it names none."""
    return report.facts.subject.labels.get(REVISION, "") if report.facts else ""


def platform(report: Report) -> str:
    """The platform of the image that was validated, without its variant; empty where the report does not say."""
    return "/".join(report.facts.subject.platform.split("/")[:2]) if report.facts else ""


def is_commit(found: str) -> bool:
    """Whether a revision is a commit alone: with "-dirty" behind it, uncommitted files went in."""
    return _COMMIT.fullmatch(found) is not None


def versions(report: Report) -> dict[str, str]:
    """Component -> version, as far as it can be measured inside.

    Where there is no torch, NCCL's one library says which it is, and of CUDA the major: the rest of its CUDA is what
    NVIDIA compiled it with.
    """
    if report.facts is None:
        return {}
    measured = report.facts.measured
    found = dict(_of_torch(report.facts) if measured.torch else _of_nccl(measured))
    if measured.system and measured.system.python:
        found["python"] = measured.system.python
    if plugin := _of_package(measured, "libnccl-ofi"):
        found[aws_ofi_nccl.NAME] = plugin
    release = measured.system.os if measured.system else {}
    if release.get("ID"):
        found["base"] = f"{release['ID']}{release.get('VERSION_ID', '')}"
    return found


def _of_torch(case: Case) -> Iterator[tuple[str, str]]:
    """What importing torch showed."""
    if torch := case.measured.torch:
        yield "pytorch", torch.version.partition("+")[0]
        if torch.cuda:
            yield "cuda", torch.cuda
    if nccl := mapped_nccl(case):
        yield "nccl", nccl.version


def _of_nccl(measured: Measured) -> Iterator[tuple[str, str]]:
    """What the banner of libnccl says, "2.30.7+cuda13.3"; nothing where there are several, or none."""
    libraries = list(measured.tree.libraries.nccl.values()) if measured.tree else []
    if len(libraries) == 1 and libraries[0].cuda:
        yield "nccl", libraries[0].version
        yield "cuda", libraries[0].cuda.partition(".")[0]


def _of_package(measured: Measured, name: str) -> str:
    """The upstream version of a distribution's package, "1.21.1" of 1.21.1-1; empty where it is not installed."""
    packages = measured.packages
    installed = {**packages.rpm, **packages.dpkg} if packages else {}
    upstream = _UPSTREAM.match(installed.get(name, ""))
    return upstream[0] if upstream else ""
