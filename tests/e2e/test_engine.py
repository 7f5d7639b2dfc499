"""The private engine for real, in a state folder of its own: it starts, survives, ends."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from rdma_images import engine
from rdma_images.core import locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import daemons, layout, private, status
from rdma_images.engine.debian import bootstrap, debian_packages, host_apt
from rdma_images.engine.docker_command import Engine
from tests.e2e import private_engine
from tests.e2e.publish_parts import lend_packages

pytestmark = [pytest.mark.e2e, pytest.mark.part("another-engine"), private_engine.needs]

ENSURE = "from rdma_images.engine import private; print(private.up().version)"


@pytest.fixture(scope="module", autouse=True)
def state() -> Iterator[Path]:
    """Yield a state folder of this module's own, with a short path for its sockets.

    It has the base and the packages that all tests share.
    """
    folder = Path(tempfile.mkdtemp(prefix="eng-"))
    bootstrap.base_tar("debian13")
    lend_packages(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RDMA_IMAGES_STATE", str(folder))
        for name in ("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT"):
            patch.delenv(name, raising=False)
        yield folder
        private.down(purge=True)
    shutil.rmtree(folder)


@pytest.fixture
def folders() -> layout.Layout:
    return layout.layout()


@pytest.fixture
def up() -> Iterator[Engine]:
    """Yield the running private engine; ended afterwards."""
    yield private.up()
    private.down()


@pytest.fixture
def image(up: Engine) -> str:
    """Return a reference of the bootstrapped base in the engine."""
    docker(up, "import", str(bootstrap.base_tar("debian13")), "base:e2e")
    return "base:e2e"


def docker(up: Engine, *arguments: str) -> str:
    captured = subprocess.run(["docker", *arguments], env=up.environ(), capture_output=True, text=True)
    assert captured.returncode == 0, captured.stderr
    return captured.stdout.strip()


def assert_no_trace(folders: layout.Layout) -> None:
    assert daemons.processes_below(folders.root) == []
    assert str(folders.root) not in Path("/proc/self/mountinfo").read_text()
    assert not list(folders.root.rglob("*.sock"))
    assert status.engine_status().engine is None


def test_it_comes_stays_and_goes_without_a_trace(folders: layout.Layout) -> None:
    try:
        first = private.up()
        before = daemons.running(folders)
        assert private.up() == first
        assert daemons.running(folders) == before
        assert (first.kind, first.store, first.build_network) == ("private", "containerd", "host")
        reported = status.engine_status()
        assert reported.engine == first
        assert reported.folder_used
        assert reported.folder_used > 0 == status.build_cache_bytes(folders)
        with closing(engine.client(first)) as client:
            assert client.ping()
    finally:
        assert private.down() is True
    assert_no_trace(folders)
    assert private.down() is False


def test_it_outlives_the_process_that_started_it() -> None:
    subprocess.run([sys.executable, "-c", ENSURE], check=True, capture_output=True)
    try:
        assert private.running() is not None
    finally:
        private.down()


def test_it_keeps_nothing_of_who_started_it(folders: layout.Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its starter's folder for temporary files gone, it could start no container."""
    with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as patch:
        for name in ("TMPDIR", "XDG_RUNTIME_DIR", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, folder)
        patch.setenv("https_proxy", "http://localhost:9")
        umask = os.umask(0o077)
        try:
            started = private.up()
        finally:
            os.umask(umask)
        environs = [Path(f"/proc/{pid}/environ").read_bytes() for pid in daemons.running(folders).values()]
    try:
        assert all(folder.encode() not in environ and b"https_proxy=" in environ for environ in environs)
        docker(started, "import", str(bootstrap.base_tar("debian13")), "base:e2e")
        options = ("--rm", "--network", "none", "--user", "65534")
        assert docker(started, "run", *options, "base:e2e", "echo", "runs") == "runs"
    finally:
        private.down()


@pytest.mark.parametrize("names", [("dockerd",), ("containerd",), ("containerd", "dockerd")])
def test_killed_daemons_are_started_again(up: Engine, folders: layout.Layout, names: tuple[str, ...]) -> None:
    before = daemons.running(folders)
    for name in names:
        os.kill(before[name], signal.SIGKILL)
    while not daemons.running(folders).keys().isdisjoint(names):
        time.sleep(0.01)
    again = private.up()
    assert again.version == up.version
    assert set(daemons.running(folders).values()).isdisjoint(before.values())
    assert docker(again, "ps", "--quiet") == ""


def test_a_container_of_killed_daemons_goes_too(up: Engine, folders: layout.Layout, image: str) -> None:
    docker(up, "run", "--detach", "--network", "none", image, "sleep", "1234.5")
    for pid in daemons.running(folders).values():
        os.kill(pid, signal.SIGKILL)
    assert daemons.processes_below(folders.root), "the shim is what this is about"
    assert private.down() is True
    assert_no_trace(folders)
    assert not sleeping("1234.5")


def test_a_running_container_goes_with_the_engine(up: Engine, folders: layout.Layout, image: str) -> None:
    docker(up, "run", "--detach", "--init", "--network", "none", image, "sleep", "1234.6")
    assert private.down() is True
    assert_no_trace(folders)
    assert not sleeping("1234.6")


def sleeping(seconds: str) -> list[Path]:
    """Return the processes that sleep for so long."""
    command = f"sleep\0{seconds}\0".encode()
    return [p for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists() and p.read_bytes().endswith(command)]


def test_two_at_once_start_one(folders: layout.Layout) -> None:
    try:
        starters = [subprocess.Popen([sys.executable, "-c", ENSURE], stdout=subprocess.PIPE, text=True) for _ in "ab"]
        output = [starter.communicate(timeout=120)[0] for starter in starters]
        assert [starter.returncode for starter in starters] == [0, 0]
        assert output[0] == output[1] != ""
        assert len([daemon for daemon in daemons.processes_below(folders.root) if is_dockerd(daemon)]) == 1
    finally:
        private.down()


def is_dockerd(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").readlink().name == "dockerd"


def test_half_a_package_and_a_killed_start_heal(folders: layout.Layout) -> None:
    private.up()
    private.down()
    # As a kill leaves it: a folder half unpacked, none that is whole, a record of a process long dead.
    unpacking = folders.docker.folder.with_name(f".{folders.docker.folder.name}.new") / ".debs"
    unpacking.mkdir(parents=True)
    (unpacking / "containerd.deb").write_bytes(b"half")
    shutil.rmtree(folders.docker.folder)
    folders.run.mkdir()
    (folders.run / "dockerd.started").write_text("1")
    (folders.run / "containerd.sock").touch()
    try:
        assert private.up().version
        assert not unpacking.exists()
    finally:
        private.down()


def test_an_interrupted_start_leaves_nothing_half(folders: layout.Layout) -> None:
    private.down()
    shutil.rmtree(folders.docker.folder, ignore_errors=True)
    with subprocess.Popen([sys.executable, "-c", ENSURE], stderr=subprocess.PIPE, text=True) as starting:
        while not list(folders.docker.folder.parent.glob(".docker.new/.debs/*")):
            assert starting.poll() is None
        starting.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in starting.communicate(timeout=60)[1]
    assert list(folders.docker.folder.parent.glob(".*")) == []
    assert locking.holders() == {}
    try:
        assert private.up().version
    finally:
        private.down()


def test_what_apt_cannot_verify_is_never_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive = host_apt.host_archives()
    # A keyring of Debian's, which did not sign this suite.
    untrusted = dataclasses.replace(archive.main, signed_by="/usr/share/keyrings/debian-archive-removed-keys.gpg")
    monkeypatch.setattr(host_apt, "host_archives", lambda: dataclasses.replace(archive, main=untrusted))
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    with pytest.raises(RdmaImagesError, match=r"apt-get update for Debian trixie failed: .*sign"):
        debian_packages.fetch(["tini"], "trixie", tmp_path / "tini")
    assert not (tmp_path / "tini").exists()


def test_a_package_nobody_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(RdmaImagesError, match=r"apt-get download for Debian trixie failed: .*no-such-package"):
        debian_packages.fetch(["no-such-package"], "trixie", tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_a_build_reaches_the_archive_and_a_run_needs_no_network(up: Engine, image: str, tmp_path: Path) -> None:
    # The list of all packages would take apt half a minute of a processor.
    small_suites = "sed -i 's/^Suites: trixie /Suites: /' /etc/apt/sources.list.d/debian.sources"
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\nRUN {small_suites} && apt-get update\n")
    docker(up, "buildx", "build", "--network", up.build_network, "--tag", "lists:e2e", str(tmp_path))
    script = "ls /var/lib/apt/lists | grep -c 'trixie-updates.*_Packages'; ls /sys/class/net"
    assert docker(up, "run", "--rm", "--network", "none", "lists:e2e", "sh", "-c", script) == "1\nlo"


def test_a_killed_bootstrap_leaves_nothing_mounted(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = state / "killed"
    lend_packages(folder)
    shutil.rmtree(folder / "bases")
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(folder))
    command = [sys.executable, "-c", "from rdma_images.engine.debian import bootstrap; bootstrap.base_tar('debian13')"]
    with subprocess.Popen(command, start_new_session=True) as making:
        while not inside(folder):  # a process in the new root: mmdebstrap has mounted /proc and /sys there
            assert making.poll() is None
            time.sleep(0.05)
        os.killpg(making.pid, signal.SIGKILL)
    while inside(folder):
        time.sleep(0.05)
    assert str(folder) not in Path("/proc/self/mounts").read_text()
    shutil.rmtree(folder)


def inside(folder: Path) -> bool:
    """Return whether a process has its root under `folder`."""
    for root in Path("/proc").glob("[0-9]*/root"):
        with suppress(OSError):
            if str(root.readlink()).startswith(str(folder)):
                return True
    return False


@pytest.mark.parametrize("name", ["debian13", pytest.param("debian12", marks=pytest.mark.exhaustive)])
def test_a_base_has_the_same_bytes_wherever_it_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bootstrap.base_tar(name)
    with tempfile.TemporaryDirectory(prefix="eng-") as elsewhere:
        # Nobody but root gets in here, as in root's home: apt's own user must make no difference.
        lend_packages(Path(elsewhere))
        shutil.rmtree(Path(elsewhere, "bases"))
        monkeypatch.setenv("RDMA_IMAGES_STATE", elsewhere)
        second = bootstrap.base_tar(name)
        if first.name != second.name:
            pytest.skip("the archive changed between the two")
        assert first.read_bytes() == second.read_bytes()


def test_a_base_holds_nothing_of_this_host() -> None:
    with tarfile.open(bootstrap.base_tar("debian13")) as tar:
        names = set(tar.getnames())
        listed = tar.extractfile("./etc/apt/sources.list.d/debian.sources")
        assert listed
        sources = listed.read().decode()
        times = {member.mtime for member in tar}
        devices = [member.name for member in tar if member.isdev()]
    assert devices == [], "which rootless Docker cannot make"
    assert not names & {"./etc/resolv.conf", "./etc/hostname", "./etc/machine-id", "./etc/apt/sources.list"}
    assert not [n for n in names if n.startswith(("./var/lib/apt/lists/", "./var/cache/apt/", "./usr/share/man/"))]
    assert "./etc/ssl/certs/ca-certificates.crt" in names
    assert [a.suite for a in host_apt.deb822_archives(sources)] == ["trixie", "trixie-updates", "trixie-security"]
    assert times == {bootstrap.EPOCH}


def test_purge_leaves_nothing_of_ours(folders: layout.Layout, state: Path) -> None:
    private.up()
    bootstrap.base_tar("debian13")
    assert private.down(purge=True) is True
    assert not folders.root.exists()
    assert [path for path in state.rglob("*") if not path.is_dir()] == []
    assert private.down(purge=True) is False
