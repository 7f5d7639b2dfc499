"""The engine's parts that need no engine: what is read, refused and written."""

import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
from typing import Any
from urllib.parse import unquote

import pytest
from rich.console import Console

from rdma_images import engine
from rdma_images.build import execute
from rdma_images.core import disk_space, locking
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.debian import bootstrap, unpacked
from rdma_images.engine import Engine, daemon_api, daemons, discovery, docker_command, layout, private, process, status


@pytest.fixture
def folders(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> layout.Layout:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    parts = layout.layout()
    for folder, program in ((parts.runtime.folder, "usr/bin/tini-static"), (parts.docker.folder, layout.BUILDX)):
        (folder / program).parent.mkdir(parents=True)
        (folder / program).touch()
    return parts


@pytest.fixture
def no_choice(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(discovery, "DEFAULT_SOCKET", tmp_path / "docker.sock")
    return tmp_path


@pytest.mark.parametrize("version", ["24.0.0", "26.1.5+dfsg1", "v27.0.0-rc.1", "100.0"])
def test_a_docker_that_will_do(version: str) -> None:
    assert discovery.too_old("Docker", version, discovery.DOCKER) is None


@pytest.mark.parametrize("version", ["23.0.6", "20.10.24+dfsg1", "", "dev"])
def test_a_docker_that_will_not_do(version: str) -> None:
    assert discovery.too_old("Docker", version, discovery.DOCKER) == f"Docker is {version}, and 24.0 or later is needed"


def test_buildx_of_debian_13_will_do() -> None:
    assert discovery.too_old("buildx", "0.13.1+ds1", discovery.BUILDX) is None
    assert discovery.too_old("buildx", "v0.9.1", discovery.BUILDX)


def test_no_docker_is_said_without_asking_anyone(no_choice: pathlib.Path) -> None:
    assert discovery.find() == (None, f"there is no Docker at {no_choice}/docker.sock")


def test_a_chosen_engine_that_is_unreachable_is_never_replaced(
    no_choice: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{no_choice}/nobody.sock")
    with pytest.raises(RdmaImagesError, match=r"DOCKER_HOST names an engine that .*\nfix that, or unset DOCKER_HOST"):
        discovery.find()


def test_a_context_that_cannot_be_used_is_left_by_dockers_own_command(
    no_choice: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_choice / "config.json").write_text('{"currentContext": "far"}')
    monkeypatch.setattr(discovery, "_docker", lambda *_: ("ssh://far", ""))
    with pytest.raises(RdmaImagesError, match=r"'far' names .*\nforward .*, or `docker context use default`$"):
        discovery.find()


@pytest.mark.parametrize("chosen", [False, True])
def test_a_user_outside_of_dockers_group_is_told_so(
    no_choice: pathlib.Path, monkeypatch: pytest.MonkeyPatch, chosen: bool
) -> None:
    """Docker is there: to install it is no advice."""
    (no_choice / "docker.sock").touch()
    (no_choice / "config.json").write_text('{"currentContext": "farm"}' if chosen else "{}")
    raw = "permission denied while trying to connect to the Docker daemon socket at unix:///x: Get … permission denied"
    answers = {"context": ("unix:///x", ""), "info": ("", raw)}
    monkeypatch.setattr(discovery, "_docker", lambda command, *_: answers[command])
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/docker")
    monkeypatch.setattr(private, "obstacle", lambda: private.NEEDS_ROOT)
    monkeypatch.setattr(private, "running", lambda: None)
    with pytest.raises(RdmaImagesError) as caught:
        engine.ensure()
    first_line, fix = str(caught.value).splitlines()
    assert "this user may not open Docker's socket" in first_line
    assert len(first_line) <= 160
    assert fix.startswith("add this user to the socket's group, as with `sudo usermod -aG docker USER`, and log in")


def test_a_complaint_of_several_lines_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an engine over TCP whose host does not answer."""
    answer = json.dumps({"ServerErrors": ["error during connect: exit status 255\n\nstderr=refused\n"]})
    monkeypatch.setattr(discovery, "_docker", lambda *_: (answer, ""))
    assert discovery.inspect_engine() == (None, "error during connect: exit status 255 stderr=refused")


def test_a_chosen_context_is_named(no_choice: pathlib.Path) -> None:
    (no_choice / "config.json").write_text('{"currentContext": "farm"}')
    with pytest.raises(RdmaImagesError, match="the docker context 'farm' names an engine that cannot be used: "):
        discovery.find()


def test_missing_disk_space_is_reported_with_numbers_place_and_fix(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    disk_space.require(1, "nothing much", tmp_path / "not" / "yet")
    with pytest.raises(RdmaImagesError) as caught:
        disk_space.require(10**18, "building efa-pytorch", tmp_path / "state" / "engine")
    assert f"building efa-pytorch needs 1,000,000,000 GB, and {tmp_path}/state/engine has " in str(caught.value)
    assert "or set RDMA_IMAGES_STATE to a folder on a larger disk" in str(caught.value)
    with pytest.raises(RdmaImagesError, match=r"and .*/docker has .* free\nfree .* there$"):
        disk_space.require(10**18, "building efa-pytorch", tmp_path / "docker")


def test_the_cache_may_take_a_fifth_of_what_is_free(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"total": 250 * disk_space.GB, "used": 170 * disk_space.GB, "free": 80 * disk_space.GB}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), sizes))
    assert disk_space.cache_limit(tmp_path) == 16 * disk_space.GB
    sizes["free"] = 1000 * disk_space.GB
    assert disk_space.cache_limit(tmp_path) == 40 * disk_space.GB
    sizes["free"] = 10 * disk_space.GB
    assert disk_space.cache_limit(tmp_path) == 8 * disk_space.GB


def test_used_counts_what_is_there(tmp_path: pathlib.Path) -> None:
    assert disk_space.used_bytes(tmp_path / "none") == 0
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert 100_000 <= disk_space.used_bytes(tmp_path) < 200_000


def test_removing_a_folder_frees_what_has_no_name_elsewhere(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "layers"
    folder.mkdir()
    assert disk_space.bytes_freed(tmp_path / "none") == 0
    (folder / "here").write_bytes(b"x" * 100_000)
    (folder / "again").hardlink_to(folder / "here")
    (folder / "shared").write_bytes(b"x" * 500_000)
    (tmp_path / "engine").hardlink_to(folder / "shared")
    assert 100_000 <= disk_space.bytes_freed(folder) < 200_000


def test_the_status_says_what_removing_layers_frees_and_when_a_build_does(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, folders: layout.Layout
) -> None:
    monkeypatch.setattr(disk_space, "bytes_freed", lambda folder: 14_800_000_000 if folder.name == "layers" else 0)
    monkeypatch.setattr(daemon_api, "get", lambda *_: {"LayersSize": 0})
    (space,) = status.freeable_space(folders, None, 12 * disk_space.GB)
    assert space.bytes == 14_800_000_000
    assert space.command == (
        f"`rm -r {tmp_path}/layers`: made again when needed; above 12.0 GB a build removes those unused for an hour"
    )


def test_a_state_folder_too_long_for_sockets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", "/tmp/" + "long/" * 20)
    with pytest.raises(RdmaImagesError, match=r"bytes long, and Linux takes 107\nset RDMA_IMAGES_STATE"):
        layout.layout()


def test_the_daemons_keep_to_their_folder(folders: layout.Layout) -> None:
    layout.write_configuration(folders)
    daemon = json.loads((folders.root / "daemon.json").read_text())
    for key in ("data-root", "exec-root", "pidfile", "containerd", "init-path"):
        assert daemon[key].startswith(f"{folders.root}/"), key
    assert daemon["hosts"] == [f"unix://{folders.root}/run/docker.sock"]
    assert daemon["features"] == {"containerd-snapshotter": True}
    assert daemon["builder"]["gc"]["enabled"]
    assert daemon["builder"]["gc"]["policy"][0]["keepStorage"] == f"{layout.cache_limit(folders)}B"
    assert 0 < layout.cache_limit(folders) <= disk_space.CACHE_MAX_BYTES


def test_a_full_disk_is_no_lasting_error_of_containerd(folders: layout.Layout) -> None:
    """It makes this folder at its first write, and never tries again: later builds failed with 12 GB free."""
    layout.write_configuration(folders)
    root = next(
        line.split('"')[1]
        for line in (folders.root / "containerd.toml").read_text(encoding="utf-8").splitlines()
        if line.startswith("root = ")
    )
    assert pathlib.Path(root, "io.containerd.content.v1.content", "ingest").is_dir()


@pytest.mark.parametrize("before", [None, "", "{}", "not json", '{"auths": {"registry.example": {"auth": "eDp5"}}}'])
def test_the_clients_file_keeps_a_login_and_repairs_the_rest(folders: layout.Layout, before: str | None) -> None:
    folders.docker_config.mkdir(parents=True)
    path = folders.docker_config / "config.json"
    if before is not None:
        path.write_text(before)
    layout.write_configuration(folders)
    config = json.loads(path.read_text())
    assert config["cliPluginsExtraDirs"] == [str((folders.docker.folder / layout.BUILDX).parent)]
    assert ("auths" in config) == ("auths" in (before or ""))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_program_that_is_missing_is_named(folders: layout.Layout) -> None:
    with pytest.raises(RdmaImagesError, match=r"has no dockerd in .*\n.*engine\.down --purge"):
        folders.program("dockerd")


def test_a_process_outlives_us_and_is_found_again(tmp_path: pathlib.Path) -> None:
    record = tmp_path / "sleeper.json"
    sleeper = process.start(["sleep", "60"], tmp_path / "log", os.environ, record)
    try:
        assert process.recorded(record) == sleeper
        assert os.getsid(sleeper.pid) == sleeper.pid
    finally:
        process.terminate(sleeper, 5)
    assert process.recorded(record) is None


def test_a_later_process_of_the_same_pid_is_another(tmp_path: pathlib.Path) -> None:
    record = tmp_path / "us.json"
    record.write_text(json.dumps({"pid": os.getpid(), "started": 1}))
    assert process.recorded(record) is None
    record.write_text("{half")
    assert process.recorded(record) is None


def test_who_does_not_end_when_asked_is_killed(tmp_path: pathlib.Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    log = tmp_path / "log"
    deaf_process = process.start([sys.executable, "-c", deaf], log, os.environ, tmp_path / "deaf.json")
    while not log.read_text():
        time.sleep(0.02)
    process.terminate(deaf_process, 0.2)
    assert not deaf_process.is_running()


def sleep() -> str:
    """Return the program of this machine."""
    program = shutil.which("sleep")
    assert program
    return program


def test_processes_are_found_by_the_folder_of_their_program(tmp_path: pathlib.Path) -> None:
    program = shutil.copy(sleep(), tmp_path / "sleep")
    with subprocess.Popen([program, "60"]) as child:
        try:
            assert [running.pid for running in process.processes_below(tmp_path)] == [child.pid]
            assert child.pid in [running.pid for running in process.children(process.Process(os.getpid(), 0))]
        finally:
            child.kill()
    assert list(process.processes_below(tmp_path)) == []


def test_a_process_of_another_root_is_not_ours(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.copy(sleep(), tmp_path / "sleep")
    with subprocess.Popen([program, "60"]) as child:
        try:
            # As seen from a chroot: the same path names another file there.
            (tmp_path / "sleep").unlink()
            shutil.copy(sleep(), tmp_path / "sleep")
            monkeypatch.setattr(pathlib.Path, "readlink", lambda _: tmp_path / "sleep")
            assert list(process.processes_below(tmp_path)) == []
        finally:
            child.kill()


def test_an_unknown_base_is_refused_with_the_near_ones() -> None:
    with pytest.raises(RefusedError, match=r"no base 'debian14' can be bootstrapped\ndid you mean debian1"):
        bootstrap.base("debian14")


def test_a_base_made_by_another_recipe_is_not_taken(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases" / "x.tar").touch()
    card = {"name": "debian13", "suite": "trixie", "archive": "a", "mmdebstrap": "1", "tar": "x.tar"}
    path = tmp_path / "bases" / "debian13.json"
    path.write_text(json.dumps(card | {"recipe": bootstrap.recipe_digest("debian13")}))
    recorded = bootstrap.last_bootstrapped("debian13")
    assert recorded
    assert recorded.tar == "x.tar"
    path.write_text(json.dumps(card | {"recipe": "older"}))
    assert bootstrap.last_bootstrapped("debian13") is None


def test_packages_that_came_whole_are_not_fetched_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / unpacked.MANIFEST).write_text('{"runc": "1.1.5"}')
    assert unpacked.fetch(["runc"], "no such suite", tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("obstacle", "answer"),
    [(None, "no private engine runs: `invoke engine.up` starts one"), ("a private one needs root", "needs root")],
)
def test_where_up_is_offered(
    no_choice: pathlib.Path, monkeypatch: pytest.MonkeyPatch, obstacle: str | None, answer: str
) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(no_choice))
    monkeypatch.setattr(private, "obstacle", lambda: obstacle)
    assert status.status(0).problem == f"there is no Docker at {no_choice}/docker.sock, and " + (obstacle or answer)


def test_what_images_and_cache_take_is_the_most_that_can_be_freed(
    folders: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share layers, and the engine counts these for both."""
    monkeypatch.setattr(daemon_api, "get", lambda *_: {"LayersSize": 2 * disk_space.GB})
    spaces = status.freeable_space(folders, disk_space.GB, 0)
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(status.table(status.Status(None, space=spaces)))
    text = console.export_text()
    assert "can be freed: images       at most 2.00 GB: `invoke engine.prune` removes those" in text
    assert "can be freed: build cache  at most 1.00 GB: `invoke engine.prune --cache`" in text


def test_the_status_is_a_table_and_json() -> None:
    lab = docker_command.Engine(
        "private", "private", "unix:///s", "26.1", "0.13", "containerd", "host", {"PATH": "/secret"}
    )
    engine_status = status.Status(
        lab,
        versions={"docker": "26.1"},
        folder="/state/engine",
        folder_used=3 * disk_space.GB,
        disk_free=9 * disk_space.GB,
        cache_used=2 * disk_space.GB,
        cache_limit=40 * disk_space.GB,
        locks={"build": locking.Holder("a build", 7, "2026-01-01T00:00:00+00:00")},
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(status.table(engine_status))
    text = console.export_text()
    assert "3.00 GB in /state/engine, 9.00 GB free there" in text
    assert "2.00 GB; above 40.0 GB the least used is removed" in text
    assert "process 7 (a build) since 2026-01-01T00:00:00+00:00" in text
    answer = json.loads(json.dumps(engine_status.json()))
    assert answer["engine"]["version"] == "26.1"
    assert "/secret" not in json.dumps(answer)


def test_a_silent_daemon_is_no_crash(folders: layout.Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.run.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folders.socket))
        silent.listen()
        monkeypatch.setattr(status, "COUNTING", 0.05)
        monkeypatch.setattr(private, "INFO_SECONDS", 0.05)
        monkeypatch.setattr(private, "_output", lambda *_: "")
        with pytest.raises(RdmaImagesError, match=r"does not say what it is: .*\ntry again"):
            private.describe(folders, {})
        assert status.build_cache_bytes(folders) is None


def test_images_are_listed_and_removed_by_the_engines_socket(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, str]] = []

    def send(_path: pathlib.Path, method: str, question: str, _seconds: float) -> Any:
        requests.append((method, unquote(question)))
        return [{"Id": "sha256:2"}]

    monkeypatch.setattr(daemon_api, "send", send)
    monkeypatch.setattr(docker_command, "run", lambda *_: pytest.fail("the docker command was started"))
    lab = Engine("lab", "existing", f"unix://{tmp_path}/x", "28", "0.13", "containerd", "default")
    assert docker_command.labelled(lab, "a", "b=1") == ["sha256:2"]
    docker_command.remove_images(lab, "127.0.0.1:1/x:y")
    assert requests == [
        ("GET", '/images/json?filters={"label": ["a", "b=1"]}'),
        ("DELETE", "/images/127.0.0.1:1/x:y"),
    ]


@pytest.mark.parametrize(("times", "message"), [(2, "content digest sha256:1: not found"), (9, "cannot connect")])
def test_images_are_listed_while_somebody_removes_one(
    monkeypatch: pytest.MonkeyPatch, times: int, message: str
) -> None:
    answers = iter([subprocess.CompletedProcess((), 1, "", message)] * times)
    listed = subprocess.CompletedProcess((), 0, "sha256:2\nsha256:3\n", "")
    monkeypatch.setattr(docker_command, "run", lambda *_: next(answers, listed))
    lab = Engine("lab", "existing", "unix:///x", "28", "0.13", "containerd", "default")
    if times == 2:
        assert docker_command.labelled(lab, "x") == ["sha256:2", "sha256:3"]
    else:
        with pytest.raises(RdmaImagesError, match=message):
            docker_command.labelled(lab, "x")
        assert len(list(answers)) == times - 1


@pytest.mark.parametrize(("uid", "options"), [(0, ["--mount"]), (1001, ["--user", "--map-root-user", "--map-auto"])])
def test_a_base_is_bootstrapped_in_the_namespace_of_its_user(
    uid: int, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdma_images.debian.bootstrap.os.geteuid", lambda: uid)
    assert list(bootstrap.namespace_command())[1 : len(options) + 1] == options


def test_a_user_without_a_namespace_is_told_before_anything_is_fetched(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    monkeypatch.setattr(unpacked, "missing_programs", list)
    monkeypatch.setattr("rdma_images.debian.host_apt.debian", lambda: None)
    (tmp_path / "unshare").write_text("#!/bin/sh\necho 'unshare: newuidmap: No such file' >&2; exit 126\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("rdma_images.debian.bootstrap.os.geteuid", lambda: 1001)
    bootstrap.namespace_obstacle.cache_clear()
    try:
        assert not bootstrap.is_possible("debian13", "linux/amd64")
        expected = r"bootstrapped: bootstrapping without root needs Debian's package uidmap.*newuidmap.*\nrun as root"
        with pytest.raises(RdmaImagesError, match=expected):
            bootstrap.base("debian13")
    finally:
        bootstrap.namespace_obstacle.cache_clear()
    assert not (tmp_path / "debian").exists()


def test_what_a_refused_unshare_leaves_behind_is_ended(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As util-linux 2.38 does in a chroot: its helper waits forever, with the standard error that it was given."""
    late = tmp_path / "late"
    (tmp_path / "unshare").write_text(f"#!/bin/sh\n(sleep 20; touch {late}) &\necho not permitted >&2; exit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("rdma_images.debian.bootstrap.os.geteuid", lambda: 1001)
    bootstrap.namespace_obstacle.cache_clear()
    try:
        assert str(bootstrap.namespace_obstacle()).endswith("(not permitted)")
    finally:
        bootstrap.namespace_obstacle.cache_clear()
    assert not late.exists()


def test_a_host_without_apt_bootstraps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = bootstrap.obstacle("debian13", "linux/amd64")
    assert reason == "this host lacks apt-get, apt-config, dpkg-deb"


@pytest.mark.usefixtures("no_choice")
def test_a_user_is_told_what_else_than_root_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "running", lambda: None)
    monkeypatch.setattr(private, "obstacle", lambda: private.NEEDS_ROOT)
    with pytest.raises(RdmaImagesError, match=r"needs root\n.*add this user to its group.* or run the command as root"):
        engine.ensure()
    monkeypatch.setattr(private, "obstacle", lambda: "this host is not Debian")
    with pytest.raises(RdmaImagesError, match=r"not Debian\n.*or set DOCKER_HOST$"):
        engine.ensure()


def test_a_data_folder_closed_to_the_user_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: pathlib.Path) -> bool:
        raise PermissionError(13, "Permission denied")

    existing = Engine("default", "existing", "unix:///run/docker.sock", "26.1.5", "0.13.1", "classic", "default")
    answer = subprocess.CompletedProcess([], 0, stdout="/var/lib/docker/x", stderr="")
    monkeypatch.setattr(docker_command, "run", lambda *_, **__: answer)
    monkeypatch.setattr(pathlib.Path, "is_dir", closed)
    monkeypatch.setattr(disk_space, "require", lambda *_: pytest.fail("a disk that is not known was compared"))
    execute.require_space([], existing, handed_over=True)


def test_podman_in_place_of_docker_is_called_podman(monkeypatch: pytest.MonkeyPatch) -> None:
    # Podman 4.3.1's answers through Docker's client 28.2.
    answers = {
        "context": "unix:///run/podman.sock",
        "info": '{"ServerVersion": "4.3.1", "ClientInfo": {}}',
        "version": "Podman Engine\nConmon\nOCI Runtime",
    }
    monkeypatch.setattr(discovery, "_docker", lambda command, *_: (answers[command], ""))
    assert discovery.inspect_engine() == (None, "it is Podman 4.3.1, which has no BuildKit, and Docker is needed")
    answers["version"] = "Engine"
    assert discovery.inspect_engine() == (None, "Docker is 4.3.1, and 24.0 or later is needed")


def test_an_engine_over_ssh_is_refused_before_its_host_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host may answer only after a question, as of its key, and the answer is the same."""
    answers = {"context": "ssh://user@host"}
    monkeypatch.setattr(discovery, "_docker", lambda command, *_: (answers[command], ""))
    assert discovery.inspect_engine() == (None, discovery.SSH)


@pytest.mark.parametrize(
    ("last", "fix"),
    [("mkdir /s/run: no space left on device", "free disk space there, as with "), ("failed to start", "see ")],
)
def test_a_daemon_that_ended_is_reported_by_its_last_line(tmp_path: pathlib.Path, last: str, fix: str) -> None:
    log = tmp_path / "dockerd.log"
    daemon = process.start(["/bin/sh", "-c", f"echo first; echo '{last}'"], log, {}, tmp_path / "dockerd.json")
    with pytest.raises(RdmaImagesError) as caught:
        daemons.wait_until_ready(lambda: False, daemon, "dockerd", log)
    line, advice = str(caught.value).splitlines()
    assert line == f"the private engine's dockerd ended, and last wrote: {last}"
    assert advice.startswith(fix)
    assert str(log) in advice
