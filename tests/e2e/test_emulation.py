"""An image for another processor: built and validated by emulation, and joined."""

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.core.image import MACHINES, Image
from rdma_images.engine import platforms
from rdma_images.inputs import project, target_options
from rdma_images.plan import matrix
from rdma_images.publish import gate, platform_index, publish_images
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.push import PushPolicy
from rdma_images.publish.verify import verify
from rdma_images.registry.registries import Oci
from rdma_images.report.report_files import REPORT
from rdma_images.validate import suite
from tests.e2e.publish_parts import PASSWORD, USER, Registry, placed, registry_program
from tests.support.built_targets import built, run

OTHER = next(name for name in MACHINES if platforms.is_foreign(name))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.part("engine"),
    pytest.mark.exhaustive,
    pytest.mark.skipif(not platforms.has_emulator(OTHER), reason=f"no emulator for {OTHER} is registered here"),
]

PLATFORMS = sorted(MACHINES)
PLUGIN = "aws-ofi-nccl=1.21.1"  # no EFA installer brings one for Debian on arm64


def image(of_platform: str) -> Image:
    (image,) = target_options.chosen_images(
        project.load(), ["efa-nccl-tests"], False, [f"platform={of_platform}", PLUGIN], rehearse=True
    )
    return image


@pytest.fixture(scope="module")
def refs() -> dict[str, str]:
    """Return the name of the image by platform, each built and validated as by a user."""
    by_platform: dict[str, str] = {}
    for name in PLATFORMS:
        output, _ = built("--target", "efa-nccl-tests", "--set", f"platform={name}", "--set", PLUGIN)
        (build,) = output["builds"]
        by_platform[name] = build["ref"]
    return by_platform


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("TEST_REGISTRY_USER", USER)
    monkeypatch.setenv("TEST_REGISTRY_PASSWORD", PASSWORD)
    server = Registry(registry_program(), tmp_path / "registry").start()
    yield server
    server.kill()


def test_its_programs_run_here_and_its_report_measured_them(refs: dict[str, str]) -> None:
    machine = MACHINES[OTHER]
    assert platform.machine() != machine
    code, output = run(refs[OTHER], "uname -m; mpirun --allow-run-as-root -np 1 all_reduce_perf -b 8 -e 16")
    assert code == 1  # a stand-in measures nothing, and says so
    assert output.startswith(machine)
    assert "rank 0 of 1, NCCL 23102, 0 GPUs: this image is a rehearsal" in output
    report = REPORT.read(image(OTHER).id)
    assert report
    assert report.inspection
    assert report.inspection.measured.system
    assert report.inspection.measured.system.machine == machine
    passed = {check.id for check in report.checks if check.outcome == "passed"}
    assert {"plugin.found", "libfabric.fi-info"} <= passed


@pytest.mark.usefixtures("refs")
def test_both_platforms_are_joined_and_verified(registry: Registry) -> None:
    entry: Oci = registry.entry()
    images = [image(name) for name in PLATFORMS]
    reports = [REPORT.read(candidate.id) for candidate in images]
    uncommitted = any(report and gate._failed(report, is_built_here=True) for report in reports)
    sender = Publisher(engine=engines.ensure, progress=print, push_policy=PushPolicy(3, 0.1, 60))
    allowed = [gate.COMMITTED] if uncommitted else []
    items = publish_images.approved_images(images, images, matrix.load(), suite.digest(), allowed)
    outcomes = publish_images.publish(items, {"local": entry}, sender)
    assert [outcome.error for outcome in outcomes] == ["", ""]
    (joined,) = platform_index.join(images, matrix.load(), {"local": entry}, sender)
    assert joined.error == ""
    assert joined.tag.endswith("-debian13-rehearsal")

    verifications = verify(f"{registry.host}/training/efa-nccl-tests:{joined.tag}", entry, None)
    published = [joined.ref, *(placed(outcome).ref for outcome in outcomes)]
    assert [verification.ref.partition("@")[2] for verification in verifications] == [
        ref.partition("@")[2] for ref in published
    ]
    failed = {
        finding.check for verification in verifications for finding in verification.findings if finding.holds is False
    }
    assert failed == {"rehearsal"}, "nothing else is wrong with them"
