"""The data path of real root filesystems between emulated machines: no engine."""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import datapath, engine
from rdma_images.core import paths
from rdma_images.core.check import Check
from rdma_images.datapath import exchange, export, guests, steps
from rdma_images.datapath.guest_files import GuestFiles, prepare
from tests.e2e import volumes
from tests.e2e.datapath_roots import BROKEN, LIBRARIES, PACKAGES, bootstrap, copy, folder_disk, without_another_provider

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.part("datapath"),
    pytest.mark.skipif(os.geteuid() != 0, reason="mmdebstrap makes a root filesystem as root"),
]


@pytest.fixture(scope="module")
def parts() -> GuestFiles:
    return prepare(print)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bootstrap(tmp_path_factory.mktemp("root") / "whole", PACKAGES)


def checked(root: Path, parts: GuestFiles, folder: Path) -> tuple[Check, ...]:
    with folder_disk(root, parts) as files:
        return datapath.check(files, parts, "efa", folder)


def test_every_check_has_a_broken_image() -> None:
    subjects = {subject.id for subject, _ in (*steps.FILES, *steps.EXCHANGES)}
    assert {name for names in BROKEN.values() for name in names} == subjects


# Each boots two machines; `test_an_image_of_an_engine_is_read_out_and_nothing_of_it_stays` has one of these faults.
@pytest.mark.exhaustive
@pytest.mark.parametrize("broken", [pytest.param(change, id=change.__name__) for change in BROKEN])
def test_a_broken_image_is_red_for_the_right_reason(
    broken: Callable[[Path], None], root: Path, parts: GuestFiles, tmp_path: Path
) -> None:
    broken(copy(root, tmp_path / "root"))
    checks = {check.id.removeprefix("datapath."): check for check in checked(tmp_path / "root", parts, tmp_path)}
    for name, expected in BROKEN[broken].items():
        assert checks[name].outcome == "failed"
        assert expected in checks[name].actual
        assert checks[name].fix
    assert "== 192.168.111.2 ==" in (tmp_path / datapath.CONSOLE).read_text()


@pytest.mark.exhaustive
def test_tools_come_from_outside_where_the_image_has_only_libraries(parts: GuestFiles, tmp_path: Path) -> None:
    libraries = ("ibverbs-providers", "librdmacm1t64", "libfabric1")
    checks = checked(bootstrap(tmp_path / "root", libraries), parts, tmp_path)
    checks_by_id = {check.id: check.actual for check in checks if check.outcome == "passed"}
    assert checks_by_id["datapath.rc-pingpong"].endswith("with an outside ibv_rc_pingpong")
    assert checks_by_id["datapath.rdma-cm"].endswith("with an outside rping")
    assert checks_by_id["datapath.libfabric-rdm"].endswith("with an outside fi_pingpong")
    assert {"datapath.perftest", "datapath.mpi"} <= {check.id for check in checks if check.outcome == "skipped"}


@pytest.fixture(scope="module")
def two_guests(root: Path, parts: GuestFiles) -> Iterator[guests.TwoGuests]:
    """Yield two guests with the whole root filesystem, which they leave as it was."""
    before = sorted(path.name for path in root.iterdir())
    with folder_disk(root, parts) as files, guests.start_guests(parts, files) as pair:
        yield guests.ready_guests(pair, files)
    assert sorted(path.name for path in root.iterdir()) == before


def test_guests_reach_each_other_and_nothing_else(two_guests: guests.TwoGuests) -> None:
    assert two_guests.run("echo mine > /here && cat /here", 60).output == "mine\n"
    assert two_guests.client.run("ls /image/here", 60).status != 0
    assert two_guests.server.run("echo x > /dev/vda", 60).status != 0
    links = two_guests.server.run("ls /sys/class/net /image/sys/class/net", 60).output
    assert set(links.split()) <= {"eth0", "lo", "ls:", "/sys/class/net:", "No", "such", "file", "or", "directory"} | {
        "/image/sys/class/net:"
    }
    assert two_guests.server.run("ping -c 1 -W 5 192.168.111.2", 60).status == 0
    assert two_guests.server.run("ip route", 60).output.split("\n")[:-1] == [
        "192.168.111.0/24 dev eth0 scope link  src 192.168.111.1 "
    ]
    limits = two_guests.run("grep CapBnd /proc/self/status", 60).output
    assert not int(limits.split()[1], 16) & 1 << 14  # CAP_IPC_LOCK
    assert Path(f"/proc/{two_guests.server._process.pid}/status").read_text().count("Uid:\t65534") == 1


def test_a_machine_that_cannot_measure_its_speed_is_no_fault_of_the_image(two_guests: guests.TwoGuests) -> None:
    """perftest's client ends with "Can't produce a report", as on a busy emulated machine."""
    strict = replace(steps.WRITE, client=steps.WRITE.client.replace(" -F", ""))
    two_guests.client.run("mount --bind /dev/null /image/proc/cpuinfo", 60)
    assert exchange.perform(two_guests, steps.WRITE).outcome == "passed"
    message = exchange.perform(two_guests, strict).actual
    server, client = message.split("; ")
    assert server.startswith("the server ended with status 1: ")
    assert server.endswith("Failed to exchange data between server and clients")
    assert client.endswith("Can't produce a report")


INTERRUPTED = """
import sys
from pathlib import Path
from rdma_images import datapath
from rdma_images.datapath import guest_files
from tests.e2e.datapath_roots import folder_disk
parts = guest_files.prepare(print)
with folder_disk(Path(sys.argv[1]), parts) as files:
    datapath.check(files, parts, None, Path(sys.argv[2]), lambda line: print(line, flush=True))
"""


def leftover_files(parts: GuestFiles) -> list[str]:
    """Return what the tier could leave behind: emulators, files, mounts."""
    folder = paths.state_folder() / "datapath"
    emulators = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parts.qemu[3].encode() in words:
            emulators.append(process.name)
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    return emulators + mounts + sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGKILL, marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize(
    "moment", [pytest.param("starting two machines", marks=pytest.mark.exhaustive), "finds its port active"]
)
def test_nothing_is_left_however_it_is_ended(
    number: signal.Signals, moment: str, root: Path, parts: GuestFiles, tmp_path: Path
) -> None:
    before = leftover_files(parts)
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, root, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with program:
        assert program.stdout
        assert any(moment in line for line in program.stdout)
        program.send_signal(number)
    deadline = time.monotonic() + 300  # a machine that is booting learns that it is alone when it is up
    while leftover_files(parts) != before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert leftover_files(parts) == before
    assert not list(tmp_path.iterdir())


LACKED = ("usr/bin/sh", "usr/bin/dash", f"{LIBRARIES}/libibverbs/libefa-rdmav34.so")


def without_devices_shells_and_a_provider(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return what an image keeps of a root filesystem: some images lack even `sh`, and some a provider."""
    return None if entry.name.startswith("./dev/") or entry.name.removeprefix("./") in LACKED else entry


# An image that reads out as nothing, or without its providers, where it gets a say in how it is read; a variable that
# no shell can set; and the one that makes libfabric refuse all but the EFA that no guest has.
SETTINGS = (
    "USER games",
    "ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/games",
    "ENV TAR_OPTIONS=--exclude=*",
    "ENV my.setting=1",
    "ENV FI_PROVIDER=efa",
    f"VOLUME /{LIBRARIES}/libibverbs",
    "LABEL io.rdma-images.fabric=erdma",
)


def test_an_image_of_an_engine_is_read_out_and_nothing_of_it_stays(root: Path, tmp_path: Path) -> None:
    running = engine.ensure(print)
    archive = tmp_path / "root.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(root, ".", filter=without_devices_shells_and_a_provider)
    client = engine.client(running)
    reference = "rdma-images-test/datapath:1"
    try:
        client.api.import_image_from_file(str(archive), repository=reference, changes=list(SETTINGS))
        with volumes.none_stays(client):
            checks = datapath.run(reference, running, folder=tmp_path)
        assert not client.containers.list(all=True, filters={"ancestor": reference})
        not_passed = {check.id.removeprefix("datapath."): check for check in checks if check.outcome != "passed"}
        assert not_passed.keys() == {"erdma-provider", "gpudirect", "providers"}
        assert not_passed["providers"].outcome == "failed"
        assert BROKEN[without_another_provider]["providers"] in not_passed["providers"].actual
        assert not_passed["providers"].fix
        assert "== 192.168.111.2 ==" in (tmp_path / datapath.CONSOLE).read_text()
    finally:
        client.images.remove(reference, force=True)
        client.close()


def test_the_loader_that_reads_an_image_preloads_nothing_of_it(root: Path, parts: GuestFiles, tmp_path: Path) -> None:
    loader, *libraries, tar = parts.tar
    image = copy(root, tmp_path / "root")
    (image / "etc/ld.so.preload").write_text(f"/{LIBRARIES}/libibverbs.so.1\n")
    carried = image / "carried"
    carried.mkdir()
    for path in (*libraries, tar):
        shutil.copy(path, carried)
    (carried / loader.name).write_bytes(export.without_preloading(loader.read_bytes()))
    (carried / "as-it-came").write_bytes(loader.read_bytes())
    loaded = {}
    for name in (loader.name, "as-it-came"):
        (carried / name).chmod(0o755)
        command = ["chroot", str(image), f"/carried/{name}", "--inhibit-cache", "--library-path", "/carried"]
        loaded[name] = subprocess.run([*command, "--list", "/carried/tar"], capture_output=True, text=True).stdout
    assert "libc.so.6" in loaded[loader.name]
    assert "libibverbs" not in loaded[loader.name]
    assert "libibverbs" in loaded["as-it-came"]
