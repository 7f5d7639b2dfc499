"""The images of a CI run: each once, only those that changed, and the unlocked ones."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.ci import select
from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.engine.debian import bootstrap
from rdma_images.inputs import lock, pins
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.plan import matrix, planner
from rdma_images.registry import reference

pytestmark = pytest.mark.usefixtures("locks")
DIGEST = "sha256:" + "a" * 64
BUILDER = "base-debian13 (docker.io/library/debian:"
TESTS = "nccl-tests-2.20.0 (https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v2.20.0.tar.gz)"
GDRCOPY = "gdrcopy-2.6 (https://github.com/NVIDIA/gdrcopy/archive/refs/tags/v2.6.tar.gz)"


def plan_images(*targets: str) -> tuple[Image, ...]:
    return planner.plan(matrix.load(), facts.load(), targets).images


def test_what_changed_is_new_or_made_of_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    images = plan_images("efa-nccl-tests", "efa-pytorch", "erdma-pytorch")
    now = {image.id: f"sha256:{image.id}" for image in images}
    before = {images[0].id: now[images[0].id], images[1].id: "sha256:other"}
    monkeypatch.setattr(select, "image_digests", lambda _: now)
    monkeypatch.setattr(select, "digests_of_commit", lambda *_: before)
    assert select.images_changed_since("HEAD", images) == tuple(images[1:])


def test_a_commit_that_is_not_here_is_reported() -> None:
    with pytest.raises(RefusedError, match="fetch the commit"):
        select.digests_of_commit("0" * 40)


def test_a_commit_that_cannot_tell_builds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run([*git, *arguments], check=True)
    monkeypatch.setattr("rdma_images.core.paths.PROJECT", tmp_path)
    monkeypatch.setattr("rdma_images.core.paths.PYTHON", ("/bin/false",))
    lines: list[str] = []
    assert select.digests_of_commit("HEAD", lines.append) == {}
    assert "every image counts as changed" in lines[0]
    worktrees = subprocess.run([*git, "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(worktrees.splitlines()) == 1


@pytest.mark.parametrize("commit", ["--output=x", "-x", "no-such-commit", "HEAD\0", ""])
def test_a_commit_that_is_none_is_no_option_of_git(commit: str) -> None:
    with pytest.raises(RefusedError, match="name a"):
        select.digests_of_commit(commit)


def test_no_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match="git: No such file or directory\ninstall it"):
        select.digests_of_commit("HEAD")


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


def missing(*targets: str) -> tuple[str, ...]:
    return select.missing_locks(plan_images(*targets), facts.load(), Mirrors(paths.MATRIX))


def test_pulled_bases_and_downloads_without_a_pin_are_missing(host: bool) -> None:
    unlocked = missing("efa-nccl-tests", "efa-pytorch")
    bases = [name for name in unlocked if name.startswith(BUILDER)]
    assert [name for name in unlocked if name not in bases] == [GDRCOPY, TESTS]
    assert len(bases) == (0 if host else 1), "a base that is bootstrapped needs no pin"


@pytest.mark.usefixtures("host")
def test_what_is_locked_is_not_missing() -> None:
    (image,) = plan_images("efa-nccl-tests")
    base = facts.load().bases.bases["debian13"].image
    pins.save("bases.yaml", {reference.with_registry(base): DIGEST})
    pins.save("downloads.yaml", {"gdrcopy-2.6": DIGEST, "nccl-tests-2.20.0": DIGEST})
    select.require_locks([image], facts.load(), Mirrors(paths.MATRIX), "--all")


def test_locks_of_wheels_that_are_not_there_or_do_not_fit_are_missing(locks: Path) -> None:
    (image,) = plan_images("efa-nccl-tests")
    programs, compiler = lock.lock_request(image).key, lock.toolkit_request(image).key
    (locks / "python" / f"{compiler}.json").write_bytes((locks / "python" / f"{programs}.json").read_bytes())
    (locks / "python" / f"{programs}.json").unlink()
    (locks / "python" / "tools-linux-arm64.json").unlink()
    wheels = [name for name in missing("efa-nccl-tests") if name.startswith("wheels ")]
    assert wheels == [f"wheels {name}" for name in (programs, "tools", compiler)]


def test_the_message_ends_with_the_fix() -> None:
    with pytest.raises(RefusedError, match=r"run `invoke lock --all` .* and commit locks/") as caught:
        select.require_locks(plan_images("efa-nccl-tests"), facts.load(), Mirrors(paths.MATRIX), "--all")
    assert TESTS in str(caught.value)
    assert str(caught.value).splitlines()[-1].startswith("run `invoke lock --all`")
