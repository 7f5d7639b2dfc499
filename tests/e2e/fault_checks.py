"""The checks that fail for an image with a fault."""

from collections.abc import Sequence
from pathlib import Path

from rdma_images.core.check import Check
from rdma_images.core.image import Component, Image
from rdma_images.validate.validate_image import FabricScenario, validate
from tests.e2e import validated
from tests.e2e.fault_steps import ImageFault


def run_check(fault: ImageFault, parts: Path) -> Check:
    """Return the one check that fails for the image with this fault."""
    return run_checks([fault], parts)[fault.validator]


def run_checks(faults: Sequence[ImageFault], parts: Path) -> dict[str, Check]:
    """Return the failed checks, by id, of the image with these faults."""
    needs = [name for fault in faults for name in fault.needs]
    for name in needs:
        validated.wheel(name, parts)
    steps = (step for fault in faults for step in fault.steps)
    dockerfile = "\n".join((f"FROM {validated.good_image()}", *steps)) + "\n"
    with validated.derived(dockerfile, faults[0].tag or "red", parts if needs else None) as ref:
        scenario = FabricScenario(instance=faults[0].instance)
        report = validate(ref, validated.engine(), image=planned_image(faults[0]), again=True, scenario=scenario)
    failed = {check.id: check for check in report.checks if check.outcome == "failed"}
    assert failed.keys() == {name for fault in faults for name in (fault.validator, *fault.besides)}, failed
    return failed


def planned_image(fault: ImageFault) -> Image | None:
    """Return the image as it would have been planned, where the fault is that it is not so."""
    if not fault.planned:
        return None
    components = {name: Component(name, version, "matrix") for name, version in fault.planned.items()}
    return Image(id="red", target="x", tag="red", fabric="efa", platform="linux/amd64", axes={}, components=components)
