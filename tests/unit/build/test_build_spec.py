"""What a build locks: in locks/ for a build to ship, below build/ for a rehearsal."""

from hashlib import sha256
from pathlib import Path
from typing import get_args

import pytest

from rdma_images.build import build_spec
from rdma_images.core import paths
from rdma_images.core.image import Image, Platform
from rdma_images.inputs import lock, project, resolve
from rdma_images.inputs.wheels import Lock, LockRequest, Wheel
from tests.support.images import planned_image

VERSIONS = {"numpy": "2.4.0", "nvidia-nccl-cu13": "2.30.7", "torch": "2.15.0"}


@pytest.fixture
def requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[LockRequest]:
    """Return what the index is asked for a project with locks of the tools alone."""
    tools = {name: lock.tools_path(name).read_text() for name in get_args(Platform)}
    for name in ("LOCKS", "BUILD", "IMAGES"):
        monkeypatch.setattr(paths, name, tmp_path / name.lower())
    for platform, text in tools.items():
        path = lock.tools_path(platform)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    requests: list[LockRequest] = []

    def answer(request: LockRequest, *_: object) -> Lock:
        requests.append(request)
        wheels = (
            Wheel(
                name=name,
                version=version,
                file=f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
                sha256="0" * 64,
                size=1,
            )
            for name, version in VERSIONS.items()
        )
        return Lock(request=request, wheels=tuple(wheels))

    monkeypatch.setattr(resolve, "resolve_wheels", answer)
    return requests


def unlocked() -> Image:
    return planned_image(python_packages=("numpy==2.4.0",))


def new_locks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("torch-*.json"))


def test_a_rehearsal_changes_no_lock_of_the_user(tmp_path: Path, requests: list[LockRequest]) -> None:
    checkout = project.load()
    first = build_spec.build_spec(unlocked(), checkout, rehearse=True)
    assert new_locks(paths.LOCKS) == []
    assert first.files["matrix.yaml"] == sha256(paths.MATRIX.read_bytes()).hexdigest()
    assert new_locks(tmp_path / "build" / "locks") == [f"{lock.lock_request(unlocked()).key}.json"]
    again = build_spec.build_spec(unlocked(), checkout, rehearse=True)
    assert again.inputs == first.inputs
    assert len(requests) == 1


def test_a_build_to_ship_locks_and_says_what_to_commit(requests: list[LockRequest]) -> None:
    lines: list[str] = []
    checkout = project.load()
    build_spec.build_spec(unlocked(), checkout, rehearse=True)
    build_spec.build_spec(unlocked(), checkout, progress=lines.append)
    (name,) = new_locks(paths.LOCKS)
    assert lines[-1] == f"wrote {paths.LOCKS}/python/{name}: commit it, so that every build has these wheels"
    build_spec.build_spec(unlocked(), checkout, rehearse=True)
    assert len(requests) == 2
