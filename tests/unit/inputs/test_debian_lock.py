"""The lock of Debian's archive: which state a build takes, and how others are refused."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.build import build_secrets, stand_ins
from rdma_images.core.errors import RefusedError
from rdma_images.core.source import Supply
from rdma_images.engine.debian import bootstrap
from rdma_images.inputs import debian_lock, preflight, relock, sources
from rdma_images.inputs.debian_lock import DebianLock, DebianPackage
from rdma_images.inputs.mirrors import Mirrors, variable_suffix
from rdma_images.plan import matrix, planner
from rdma_images.render import dockerfiles
from tests.support import locks
from tests.support.images import planned
from tests.support.loopback import Answer, Site, serve

MOMENT = "20261124T123128Z"
SUITES = {"trixie": "debian", "trixie-security": "debian-security", "trixie-updates": "debian"}
LOCK = DebianLock(
    snapshot=MOMENT,
    archive="e9" * 32,
    releases={suite: hashlib.sha256(suite.encode()).hexdigest() for suite in SUITES},
    packages=(DebianPackage(name="libc6", version="2.41-12", architecture="amd64", sha256="b5" * 32),),
)


@pytest.fixture
def site() -> Iterator[Site]:
    with serve() as running:
        for suite, archive in SUITES.items():
            running.answers[f"/{archive}/{MOMENT}/dists/{suite}/InRelease"] = Answer(suite.encode())
        yield running


@pytest.fixture(autouse=True)
def lock_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of locks that has the one of debian13."""
    monkeypatch.setattr("rdma_images.core.paths.LOCKS", tmp_path)
    monkeypatch.setattr(bootstrap, "is_possible", lambda *_: True)
    file = debian_lock.path("debian13")
    file.parent.mkdir()
    file.write_text(LOCK.text())
    return tmp_path


def mirrors(site: Site | None) -> Mirrors:
    return Mirrors(Path(__file__), {variable_suffix(debian_lock.COMPONENT): (site.address, "")} if site else {})


def supplies(site: Site | None) -> dict[str, Supply]:
    supplied = preflight.find_supplies(sources.pinned(planned(), facts.load()), mirrors(site))
    return {supply.source.id: supply for supply in supplied if supply.source.kind == "apt"}


def test_a_lock_reads_as_it_was_written() -> None:
    assert debian_lock.read_lock("debian13") == LOCK
    assert debian_lock.read_lock("debian12") is None
    assert '\n    {"name": "libc6", "version": "2.41-12"' in LOCK.text()
    assert DebianLock.model_validate_json(LOCK.model_copy(update={"packages": ()}).text()).packages == ()


def test_a_locked_base_takes_its_packages_from_the_snapshot_alone(site: Site) -> None:
    supplied = supplies(site)
    assert {name: supply.address for name, supply in supplied.items()} == {
        "debian-snapshot-trixie": f"{site.address}/debian/{MOMENT}",
        "debian-snapshot-trixie-security": f"{site.address}/debian-security/{MOMENT}",
    }
    assert all(supply.reachable and supply.detail == f"as locked, {MOMENT}" for supply in supplied.values())
    text = build_secrets.secret_texts(supplied.values(), mirrors(site))["apt-sources-builder"]
    assert f" check-valid-until=no] {site.address}/debian/{MOMENT} trixie main\n" in text
    assert text.count("\ndeb ") + 1 == len(SUITES)


def test_a_snapshot_in_another_state_is_refused(site: Site) -> None:
    site.answers[f"/debian-security/{MOMENT}/dists/trixie-security/InRelease"] = Answer(b"newer")
    site.answers[f"/debian/{MOMENT}/dists/trixie-updates/InRelease"] = Answer(status=404)
    supplied = supplies(site)
    assert "trixie-security: its InRelease has the sha256 " in supplied["debian-snapshot-trixie-security"].detail
    assert supplied["debian-snapshot-trixie"].detail == "trixie-updates: answered 404 Not Found"
    with pytest.raises(preflight.UnreachableSourcesError, match=r"and locks/debian has "):
        preflight.require(list(supplied.values()))


def installing_scripts(state: str) -> list[str]:
    """Return the scripts that install packages, with a lock of this state."""
    debian_lock.path("debian13").write_text(LOCK.model_copy(update={"archive": state}).text())
    changes = {"base": "debian13", "nccl-tests": "2.20.0", "aws-ofi-nccl": "1.20.0"}
    (image,) = planner.plan(matrix.load(), facts.load(), ["efa-nccl-tests"], changes=changes).images
    archive = sources.locked_archive(sources.pinned(image, facts.load()))
    assert archive
    text = dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS, archive.pin)
    scripts = re.findall(r"id=apt-lists-debian13.*?<<'SH'\n(.*?)^SH$", text, re.DOTALL | re.MULTILINE)
    return [str(script) for script in scripts]


def test_a_step_of_another_state_comes_from_no_cache() -> None:
    """Otherwise a cache would put packages of an older state into the image."""
    before, after = installing_scripts("e9" * 32), installing_scripts("1f" * 32)
    assert len(before) == len(after) >= 5
    assert not set(before) & set(after)
    assert stand_ins.build_arguments(planned(), facts.load())["ARCHIVE"] == f"sha256:{'1f' * 32}"


def test_without_an_address_the_fix_is_a_mirror() -> None:
    details = {supply.detail for supply in supplies(None).values()}
    assert len(details) == 1
    assert "mirrors.yaml: `debian-snapshot: https://HOST/archive`" in details.pop()
    (locked,) = relock.relock_debian({"debian13": ()}, mirrors(None))
    assert locked.outcome == "failed"
    assert locked.detail.startswith("debian-snapshot has no address\n")


@pytest.mark.parametrize("text", ['{"snapshot": "yesterday"}', "{}", '{"snapshot": "20261124T123128Z", "more": 1}'])
def test_a_broken_lock_is_refused_with_its_file(text: str) -> None:
    debian_lock.path("debian13").write_text(text)
    with pytest.raises(RefusedError, match=r"debian13\.json"):
        debian_lock.read_lock("debian13")
