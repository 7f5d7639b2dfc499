"""What `invoke lock` writes down, and that one unreachable thing stops nothing else."""

import hashlib
import os
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Component, Image
from rdma_images.engine.debian import bootstrap
from rdma_images.inputs import download, lock, pins, resolve
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Lock, LockRequest, Wheel
from rdma_images.maintain import relock
from tests.support.images import planned_image
from tests.support.loopback import Answer, Site

DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder of locks, and an index that has one version of everything."""
    monkeypatch.setattr("rdma_images.core.paths.LOCKS", tmp_path / "locks")
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(resolve, "resolve_wheels", answer)
    return tmp_path / "locks"


def answer(request: LockRequest, *_: object, numpy: str = "2.4.0") -> Lock:
    """Return a resolution without asking an index, as test_resolve.py does."""
    torch = {"numpy": numpy, "torch": "2.15.0", "nvidia-nccl-cu13": "2.30.7"}
    names = torch if "torch" in request.requirements[0] else dict.fromkeys(("uv", *lock.BUILD_TOOLS), "1")
    wheels = [
        Wheel(name=name, version=v, file=f"{name.replace('-', '_')}-{v}-py3-none-any.whl", sha256="0" * 64, size=1)
        for name, v in names.items()
    ]
    return Lock(request=request, wheels=tuple(wheels))


def mirrors(site: Site) -> Mirrors:
    """Everything from the site: bases under /hub/, downloads under /files/."""
    host = site.address.removeprefix("http://")
    addresses = {"base": f"{host}/hub/", "download": f"{site.address}/files/", "index": f"{site.address}/simple"}
    return Mirrors(Path(__file__), {name: (address, "") for name, address in addresses.items()})


def erdma() -> Image:
    return planned_image(
        axes={"base": "ubuntu22.04"},
        components={"efa-installer": None, "aws-ofi-nccl": None, "erdma-apt": Component("erdma-apt", "jammy", "base")},
    )


def outcomes(site: Site, *images: Image, upgrade: bool = False) -> dict[str, str]:
    relocked = relock.relock_images(images, facts.load(), mirrors(site), upgrade)
    return {outcome.name: outcome.outcome for outcome in relocked}


@pytest.mark.usefixtures("locks")
def test_everything_is_locked_once_and_then_kept(site: Site) -> None:
    key = os.urandom(100)
    site.answers["/files/GPGKEY"] = Answer(key)
    for name in ("ubuntu:22.04", "debian:trixie-slim"):
        repository, _, tag = name.partition(":")
        site.answers[f"/v2/hub/library/{repository}/manifests/{tag}"] = Answer(
            headers={"Docker-Content-Digest": DIGEST}
        )
    first = outcomes(site, erdma())
    assert set(first) == {
        "torch-2.15.0-py3.13-linux-amd64",
        "tools-linux-amd64",
        "tools-linux-arm64",
        "docker.io/library/ubuntu:22.04",
        "docker.io/library/debian:trixie-slim",
        "erdma-apt-key",
    }
    assert set(first.values()) == {"new"}
    assert pins.bases() == dict.fromkeys(
        ("docker.io/library/debian:trixie-slim", "docker.io/library/ubuntu:22.04"), DIGEST
    )
    assert pins.downloads() == {"erdma-apt-key": f"sha256:{hashlib.sha256(key).hexdigest()}"}
    assert outcomes(site, erdma()) == dict.fromkeys(first, "kept")
    assert set(outcomes(site, erdma(), upgrade=True).values()) == {"kept"}
    site.answers["/files/GPGKEY"] = Answer(b"another")
    assert outcomes(site, erdma())["erdma-apt-key"] == "kept"
    assert outcomes(site, erdma(), upgrade=True)["erdma-apt-key"] == "changed"


def test_images_with_the_same_wheels_share_a_lock(locks: Path, site: Site) -> None:
    outcomes(site, planned_image(), planned_image(target="other"), erdma())
    assert sorted(path.name for path in (locks / "python").iterdir()) == [
        "tools-linux-amd64.json",
        "tools-linux-arm64.json",
        "torch-2.15.0-py3.13-linux-amd64.json",
    ]


def test_what_is_out_of_reach_stops_nothing_else(locks: Path, site: Site) -> None:
    loaded = {outcome.name: outcome for outcome in relock.relock_images([erdma()], facts.load(), mirrors(site))}
    assert loaded["torch-2.15.0-py3.13-linux-amd64"].outcome == "new"
    assert loaded["docker.io/library/ubuntu:22.04"].outcome == "failed"
    assert "has no such image" in loaded["docker.io/library/ubuntu:22.04"].detail
    assert "404" in loaded["erdma-apt-key"].detail
    assert not (locks / "bases.yaml").exists()


def test_a_base_that_this_host_bootstraps_may_be_out_of_reach(
    locks: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "is_possible", lambda name, _: name == "debian13")
    relocked = {item.name: item for item in relock.relock_images([planned_image()], facts.load(), mirrors(site))}
    assert relocked["docker.io/library/debian:trixie-slim"].detail == "not pinned: it is bootstrapped on this host"
    monkeypatch.setattr(bootstrap, "is_possible", lambda *_: False)
    assert outcomes(site, planned_image())["docker.io/library/debian:trixie-slim"] == "failed"
    assert not (locks / "bases.yaml").exists()


def test_wheels_that_cannot_be_resolved_are_said_and_the_old_lock_stays(
    locks: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes(site, planned_image())
    before = lock.read_image_lock(planned_image(), locks)

    def fails(*_: object) -> None:
        raise RdmaImagesError("the package index is down")

    monkeypatch.setattr(resolve, "resolve_wheels", fails)
    assert outcomes(site, planned_image(), upgrade=True)["torch-2.15.0-py3.13-linux-amd64"] == "failed"
    assert lock.read_image_lock(planned_image(), locks) == before


@pytest.mark.usefixtures("locks")
def test_an_upgrade_says_what_moved(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes(site, planned_image())
    monkeypatch.setattr(resolve, "resolve_wheels", lambda *request: answer(*request, numpy="2.4.1"))
    relocked = {
        outcome.name: outcome
        for outcome in relock.relock_images([planned_image()], facts.load(), mirrors(site), upgrade=True)
    }
    assert relocked["torch-2.15.0-py3.13-linux-amd64"].detail == "numpy 2.4.0 -> 2.4.1"


def test_a_damaged_pin_is_refused(locks: Path) -> None:
    locks.mkdir()
    (locks / "bases.yaml").write_text("pins:\n  docker.io/library/ubuntu:22.04: sha256:short\n")
    with pytest.raises(RefusedError, match=r"bases\.yaml:2: .* is no digest"):
        pins.bases()
