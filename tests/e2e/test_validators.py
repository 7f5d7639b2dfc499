"""Every validator has a real image that turns it, and only it, red."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.core.paths import VALIDATORS
from rdma_images.validate.probes import libraries
from tests.e2e import validated
from tests.e2e.fault_checks import run_check, run_checks
from tests.e2e.fault_steps import ImageFault, documented_rows, table_row
from tests.e2e.faults import DOCUMENTED, FAULTS

pytestmark = [pytest.mark.e2e, pytest.mark.part("images")]
STATIC = re.compile(r'@validator\(\s*"([\w.-]+)"(?![^@]*?tier="(?:device|gpu)")', re.DOTALL)
# What differs between an image with one fault and one with several.
OF_AN_IMAGE = re.compile(r"/[\w./-]+|layer \d+")


# One or two of every subject, the ones that cost people days, by what is wrong: those of a line are in one image. Each
# alone, and the others, run with `invoke test --exhaustive`; tests/incidents/ has images of their kinds as data.
IMAGES = {
    "preloaded-nccl": (
        "another libnccl in /etc/ld.so.preload",
        "the efa provider and its announcement where nobody looks",
        "an empty label",
        "a secret that a later layer removes",
    ),
    "second-nccl": (
        "a second libnccl that nothing loads",
        "a plugin that exports only v4",
        "another libefa first in the loader's path",
        "a stub of the driver's library",
        "a false label of the base",
    ),
    "two-wheels": (
        "the wheels for CUDA 12 and 13, both",
        "a library that libfabric needs is missing",
        "the plugin's link removed",
        "the efa provider is not announced",
    ),
    "lacking-torch": (
        "a CUDA library missing",
        "a libfabric without the efa provider",
        "another libibverbs first in the loader's path",
    ),
}


@pytest.fixture(autouse=True)
def reports_elsewhere(tmp_path: Path) -> Iterator[None]:
    """Write reports to the test's own folder."""
    with validated.reports_in(tmp_path):
        yield


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which wheels are unpacked, once."""
    return tmp_path_factory.mktemp("parts")


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.validator)
def test_a_fault_turns_one_check_red(fault: ImageFault, parts: Path) -> None:
    check = run_check(fault, parts)
    assert check.fix
    if fault is DOCUMENTED[fault.validator]:
        assert table_row(fault, check) == documented_rows()[fault.validator]


@pytest.mark.parametrize("titles", IMAGES.values(), ids=IMAGES)
def test_the_faults_of_an_image_turn_their_checks_red(titles: tuple[str, ...], parts: Path) -> None:
    by_title = {fault.title: fault for fault in FAULTS}
    faults = [by_title[title] for title in titles]
    checks = run_checks(faults, parts)
    rows = documented_rows()
    for fault in faults:
        check = checks[fault.validator]
        assert check.fix
        if fault is DOCUMENTED[fault.validator]:
            row, documented = table_row(fault, check), rows[fault.validator]
            assert OF_AN_IMAGE.sub("", row) == OF_AN_IMAGE.sub("", documented)


def test_every_static_validator_has_a_fault() -> None:
    text = "".join(path.read_text() for path in VALIDATORS.rglob("test_*.py"))
    covered = {fault.validator for fault in FAULTS}
    assert set(STATIC.findall(text)) == covered
    assert list(documented_rows()) == list(DOCUMENTED)


def test_a_third_partys_real_plugin_is_read(tmp_path: Path) -> None:
    wheel = validated.wheel("uccl", tmp_path)
    plugin = libraries.plugin_facts(str(wheel / "uccl/lib/libnccl-net-efa.so"))
    assert plugin["exports"]["ncclNetPlugin_v"] == [8]
    assert plugin["project"] == "uccl-efa"
    assert libraries.nccl_facts(str(wheel / "uccl/lib/libnccl-efa.so"))["looks_for"]["ncclNetPlugin_v"][-1] >= 8
