"""What is not locked is told before CI begins to build, in one sentence."""

import shutil
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.ci import select
from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.debian import bootstrap
from rdma_images.inputs import lock, pins
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.plan import matrix, planner
from rdma_images.registry import reference

pytestmark = pytest.mark.usefixtures("locks")
DIGEST = "sha256:" + "a" * 64
BUILDER = "base-debian13 (docker.io/library/debian:"
TESTS = "nccl-tests-2.20.0 (https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v2.20.0.tar.gz)"


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the locks of wheels as they are committed, and none of bases and downloads."""
    folder = tmp_path / "locks"
    shutil.copytree(paths.LOCKS / "python", folder / "python")
    monkeypatch.setattr(paths, "LOCKS", folder)
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    return folder


@pytest.fixture(params=[True, False], ids=["Debian host", "another host"])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(bootstrap, "is_possible", lambda *_: request.param)
    bootstraps: bool = request.param
    return bootstraps


def images(*targets: str) -> tuple[Image, ...]:
    return planner.plan(matrix.load(), facts.load(), targets).images


def missing(*targets: str) -> tuple[str, ...]:
    return select.missing_locks(images(*targets), facts.load(), Mirrors(paths.MATRIX))


def test_pulled_bases_and_downloads_without_a_pin_are_missing(host: bool) -> None:
    unlocked = missing("efa-nccl-tests", "efa-pytorch")
    bases = [name for name in unlocked if name.startswith(BUILDER)]
    assert [name for name in unlocked if name not in bases] == [TESTS]
    assert len(bases) == (0 if host else 1), "a base that is bootstrapped needs no pin"


@pytest.mark.usefixtures("host")
def test_what_is_locked_is_not_missing() -> None:
    (image,) = images("efa-nccl-tests")
    base = facts.load().bases.bases["debian13"].image
    pins.save("bases.yaml", {reference.with_registry(base): DIGEST})
    pins.save("downloads.yaml", {"nccl-tests-2.20.0": DIGEST})
    select.require_locks([image], facts.load(), Mirrors(paths.MATRIX))


def test_locks_of_wheels_that_are_not_there_or_do_not_fit_are_missing(locks: Path) -> None:
    (image,) = images("efa-nccl-tests")
    programs, compiler = lock.lock_request(image).key, lock.toolkit_request(image).key
    (locks / "python" / f"{compiler}.json").write_bytes((locks / "python" / f"{programs}.json").read_bytes())
    (locks / "python" / f"{programs}.json").unlink()
    (locks / "python" / "tools-linux-arm64.json").unlink()
    wheels = [name for name in missing("efa-nccl-tests") if name.startswith("wheels ")]
    assert wheels == [f"wheels {name}" for name in (programs, "tools", compiler)]


def test_the_message_ends_with_the_fix() -> None:
    with pytest.raises(RefusedError, match=r"run `invoke lock --all` .* and commit locks/") as caught:
        select.require_locks(images("efa-nccl-tests"), facts.load(), Mirrors(paths.MATRIX))
    assert TESTS in str(caught.value)
    assert str(caught.value).splitlines()[-1].startswith("run `invoke lock --all`")
