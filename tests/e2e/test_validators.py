"""Every validator has a real image that turns it, and only it, red."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.core.paths import PROJECT, VALIDATORS
from rdma_images.core.pipeline import Check, Component, Image
from rdma_images.validate import validate
from rdma_images.validate.probes import libraries
from tests.e2e import validated
from tests.e2e.fault_steps import ImageFault
from tests.e2e.faults import FAULTS

pytestmark = pytest.mark.e2e
DOCS = PROJECT / "docs" / "reference" / "validators.md"
STATIC = re.compile(r'@pytest\.mark\.validator\(\s*"([\w.-]+)"(?![^@]*?tier="(?:device|gpu)")', re.DOTALL)


# One or two of every subject, the ones that cost people days; the others run with `invoke test --exhaustive`.
FIRST = {
    "nccl.loaded", "nccl.single", "nccl.closure", "nccl.wheels", "torch.closure", "plugin.found",
    "chain.holds", "plugin.libfabric", "libfabric.closure", "libfabric.single", "verbs.provider",
    "verbs.loader", "verbs.suffix", "cuda.stub", "environment.obsolete", "label.complete", "label.base",
    "label.rehearsal", "layers.secrets", "files.writable",
}  # fmt: skip


@pytest.fixture(autouse=True)
def reports_elsewhere(tmp_path: Path) -> Iterator[None]:
    """Write reports to the test's own folder."""
    with validated.reports_in(tmp_path):
        yield


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which wheels are unpacked, once."""
    return tmp_path_factory.mktemp("parts")


def test_the_good_image_is_good() -> None:
    report = validated.measure(validated.good_image())
    assert validated.failed(report) == set()
    assert sum(check.outcome == "passed" for check in report.checks) > 40


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.validator, marks=() if fault.validator in FIRST else pytest.mark.exhaustive)
        for fault in FAULTS
    ],
)
def test_a_fault_turns_one_check_red(fault: ImageFault, parts: Path) -> None:
    check = run_check(fault, parts)
    assert check.expected
    assert check.actual
    assert check.fix


def run_check(fault: ImageFault, parts: Path) -> Check:
    """Return the check that failed for the image with this fault; no other did but those that the fault names."""
    for name in fault.needs:
        validated.wheel(name, parts)
    dockerfile = "\n".join((f"FROM {validated.good_image()}", *fault.steps)) + "\n"
    context = None
    if fault.needs:
        context = parts
    tag = fault.tag or "red"
    with validated.derived(dockerfile, tag, context) as ref:
        report = validate(ref, validated.engine(), image=planned(fault), reuse=False)
    failed = {check.id: check for check in report.checks if check.outcome == "failed"}
    assert failed.keys() == {fault.validator, *fault.besides}, failed
    return failed[fault.validator]


def planned(fault: ImageFault) -> Image | None:
    """Return the image as it would have been planned, where the fault is that it is not so."""
    if not fault.planned:
        return None
    components = {name: Component(name, version, "matrix") for name, version in fault.planned.items()}
    return Image("red", "efa-pytorch", "red", "efa", "linux/amd64", {}, components)


def test_every_static_validator_has_a_fault() -> None:
    text = "".join(path.read_text() for path in VALIDATORS.glob("test_*.py"))
    covered = {fault.validator for fault in FAULTS}
    assert set(STATIC.findall(text)) == covered


def test_a_third_partys_real_plugin_is_read(tmp_path: Path) -> None:
    wheel = validated.wheel("uccl", tmp_path)
    plugin = libraries.plugin_facts(str(wheel / "uccl/lib/libnccl-net-efa.so"))
    assert plugin["exports"]["ncclNetPlugin_v"] == [8]
    assert plugin["project"] == "uccl-efa"
    assert libraries.nccl_facts(str(wheel / "uccl/lib/libnccl-efa.so"))["looks_for"]["ncclNetPlugin_v"][-1] >= 8
