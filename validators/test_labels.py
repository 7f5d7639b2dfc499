"""Whether what the image says of itself is whole and true."""

import re

import pytest

from rdma_images.labels import PREFIX
from rdma_images.validate.case import Case
from rdma_images.validate.measured import System, ToolRun
from rdma_images.validate.plugin import Judge

OCI = "https://github.com/opencontainers/image-spec/blob/main/annotations.md"
DECLARED = "an image says of itself what is in it, and nothing else"
ABSENT = "the image has no torch"  # what stands for a probe's value that is None
WANTED = (
    *(f"org.opencontainers.image.{name}" for name in ("title", "description", "version", "revision", "licenses")),
    *(f"{PREFIX}.{name}" for name in ("target", "image-id", "fabric")),
)


def said(case: Case, component: str, installed_by: str | None = None) -> str:
    """The version that the labels give a component; skips where they give none, or a stand-in took its place."""
    for source in filter(None, (component, installed_by)):
        if stand_in := case.stands_in(source):
            pytest.skip(f"a stand-in took the place of {stand_in}: its versions are not the real ones")
    return case.subject.label(f"component.{component}") or pytest.skip(f"no label {PREFIX}.component.{component}")


def same(judge: Judge, label: str, found: str, what: str) -> None:
    """The label names what was found: the whole version, or its first numbers."""
    judge(
        found == label or found.startswith(f"{label}.") or found.startswith(f"{label}+"),
        expected=f"{label}, as the label {PREFIX}.component.{what} says",
        found=found or "nothing",
        mend="set labels from what was built: build the image again, or correct the label",
    )


@pytest.mark.validator("label.complete", source=OCI)
def test_complete(case: Case, judge: Judge) -> None:
    """Every label that our images carry is there and says something."""
    if not case.subject.label("target"):
        pytest.skip("not an image of this project: it has none of our labels")
    missing = [name for name in WANTED if not case.subject.labels.get(name)]
    judge(
        not missing,
        expected=", ".join(WANTED),
        found=f"missing or empty: {', '.join(missing)}" if missing else "all of them",
        mend="build the image with `invoke build`, which sets them",
    )


@pytest.mark.validator("label.python", source=DECLARED)
def test_python(case: Case, system: System, judge: Judge) -> None:
    """The label names the Python that is there."""
    same(judge, said(case, "python"), system.python, "python")


@pytest.mark.validator("label.pytorch", source=DECLARED)
def test_pytorch(case: Case, judge: Judge) -> None:
    """The label names the torch that is there."""
    label = said(case, "pytorch")
    torch, why = case.measured.torch, case.measured.missing.get("torch", "")
    if not torch and why != ABSENT:
        pytest.skip(why)
    same(judge, label, torch.version if torch else why, "pytorch")


@pytest.mark.validator("label.cuda", source=DECLARED)
def test_cuda(case: Case, judge: Judge) -> None:
    """The label names the CUDA that torch was built for."""
    torch = case.measured.torch
    label = said(case, "cuda")
    same(judge, label, (torch.cuda or "") if torch else pytest.skip(case.measured.missing["torch"]), "cuda")


@pytest.mark.validator("label.base", source=DECLARED)
def test_base(case: Case, system: System, judge: Judge) -> None:
    """The label names the distribution that the image is made from."""
    label = said(case, "base")
    found = f"{system.os.get('ID', '')}{system.os.get('VERSION_ID', '')}"
    same(judge, re.split(r"[-@:]", label)[0], found, "base")


@pytest.mark.validator("label.libfabric", source=DECLARED)
def test_libfabric(case: Case, judge: Judge) -> None:
    """The label names the libfabric that is there."""
    label = said(case, "libfabric", "efa-installer")
    runs: dict[str, ToolRun] = case.measured.tools or {}
    run = runs.get("fi_info --version")
    match = re.search(r"^libfabric: (\S+)", run.out, re.MULTILINE) if run else None
    same(judge, label, match.group(1) if match else pytest.skip("fi_info did not say its libfabric"), "libfabric")
