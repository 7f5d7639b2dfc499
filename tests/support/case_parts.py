"""Measurements of a real image, and the same as if they were of another one of the plan."""

from collections.abc import Mapping
from pathlib import Path

from rdma_images.core.check import Check
from rdma_images.core.image import Image
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import MeasuredPackages
from rdma_images.inspection.report import Report

CASES = Path(__file__).parents[1] / "data" / "cases"
RECORDED = CASES / "efa-pytorch.json"
REVISION = "org.opencontainers.image.revision"
GREEN = Check("nccl.single", "one libnccl is in the image", "static", "error", "passed")
PACKAGES = MeasuredPackages(
    wheels={"/opt/venv": {"torch": "2.15.0", "numpy": "2.4.0"}}, dpkg={"libc6": "2.41-12"}, rpm={}
)
NOTHING: Mapping[str, str] = {}


def recorded() -> Inspection:
    """Return what validating efa-pytorch's default row has measured."""
    return Inspection.model_validate_json(RECORDED.read_bytes())


def case_like(image: Image, packages: MeasuredPackages = PACKAGES, versions: Mapping[str, str] = NOTHING) -> Inspection:
    """Return the recorded case as if it were of `image`.

    With its versions (but for those given), platform and labels.
    """
    inspection = recorded()
    version = {name: component.version for name, component in image.components.items()} | dict(versions)
    labels = {REVISION: "a" * 40, "org.opencontainers.image.version": image.tag}
    name = version["base"].rstrip("0123456789.")
    assert inspection.measured.system
    system = inspection.measured.system.model_copy(
        update={
            "python": f"{version['python']}.7",
            "os": {"ID": name, "VERSION_ID": version["base"].removeprefix(name)},
        }
    )
    measured: dict[str, object] = {"system": system, "packages": packages, "torch": None}
    if "pytorch" in version:
        assert inspection.measured.torch
        nccl = inspection.measured.torch.nccl[0].model_copy(update={"version": version["nccl"]})
        update = {"version": f"{version['pytorch']}+cu", "cuda": version["cuda"], "nccl": [nccl]}
        measured["torch"] = inspection.measured.torch.model_copy(update=update)
    return inspection.model_copy(
        update={
            "subject": inspection.subject.model_copy(update={"platform": image.platform, "labels": labels}),
            "measured": inspection.measured.model_copy(update=measured),
        }
    )


def report_on(image: Image, *checks: Check, facts: Inspection | None = None, digest: str = "sha256:1") -> Report:
    """Return the report of `image`, in which one check passed where none are given."""
    return Report(
        ref="r",
        digest=digest,
        suite="sha256:2",
        image_id=image.id,
        stand_ins=(),
        started="2026-11-21T08:00:00+00:00",
        seconds=1.0,
        checks=checks or (GREEN,),
        inspection=facts or case_like(image),
    )
