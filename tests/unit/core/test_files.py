"""Unusable files and folders of the user's end in a sentence with a fix."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rdma_images.core import atomic, exit_codes, files, paths
from rdma_images.report import report_files as reports
from tests.support.unprivileged import UNPRIVILEGED

# invoke, with its build folder (the first word) in another place.
TASK = """
import sys
from pathlib import Path
from rdma_images.core import paths
paths.BUILD = Path(sys.argv[1])
paths.IMAGES = paths.BUILD / "images"
from invoke.main import program
program.run(["invoke", *sys.argv[2:]])
"""
NOBODY = ["setpriv", "--reuid=54321", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]


def task(build: Path, *words: str, by: list[str] = UNPRIVILEGED, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(paths.PROJECT), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    command = [*by, sys.executable, "-c", TASK, str(build), *words]
    return subprocess.run(command, cwd=paths.PROJECT, env=environ, capture_output=True, text=True)


def assert_reported(completed: subprocess.CompletedProcess[str], expected: str) -> None:
    assert completed.returncode in (1, 2), completed.stdout + completed.stderr
    assert "Traceback" not in completed.stderr
    assert expected in completed.stderr
    assert len(completed.stderr.strip().splitlines()) >= 2


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "build" / "images")
    return tmp_path / "build" / "images"


def file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def dangling(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("nowhere")


@pytest.mark.parametrize("where", ["..", ".", "efa-pytorch"])
@pytest.mark.parametrize(("obstacle", "expected"), [(file, "is not a folder"), (dangling, "is a link to nothing")])
def test_what_is_in_the_way_of_the_build_folder_is_reported(
    images: Path, where: str, obstacle: Callable[..., object], expected: str
) -> None:
    obstacle(Path(os.path.normpath(images / where)))
    with pytest.raises(files.FileError, match=rf"{expected}\n(move|remove)"), files.raising_file_error():
        reports.write_page()


def test_a_full_disk_and_a_long_path_are_reported() -> None:
    full = Path("/dev/full")
    with (
        pytest.raises(files.FileError, match=rf"^{full}: No space left on device\nfree disk space") as caught,
        files.raising_file_error(full),
    ):
        full.write_text("x")
    assert caught.value.exit_code == exit_codes.FAILED
    with pytest.raises(files.FileError, match=r"File name too long\nchoose a shorter path"):
        atomic.write(Path("/tmp") / ("x" * 300), "")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_where_the_system_names_no_file(number: int) -> None:
    """As of a write to a file that is open: it is no matter of the command's own output."""
    message = rf"^{os.strerror(number)}\nfree disk space; `invoke engine.status` says what can be freed"
    with pytest.raises(files.FullDiskError, match=message), files.raising_file_error():
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("name", ["report", "render"])
def test_a_folder_that_cannot_be_read_is_not_reported_as_empty(tmp_path: Path, name: str) -> None:
    build = tmp_path / "build"
    (build / "images").mkdir(parents=True)
    (build / "images").chmod(0)
    words = (name, "--target", "efa-pytorch") if name == "render" else name.split()
    assert_reported(task(build, *words), f"{build}/images")


@pytest.mark.parametrize("name", ["RDMA_IMAGES_REGISTRIES", "RDMA_IMAGES_MIRRORS"])
def test_a_configuration_that_cannot_be_read_is_reported(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret" / "file.yaml"
    file(secret)
    secret.parent.chmod(0)
    words = ("publish", "--to", "x") if name.endswith("REGISTRIES") else ("sources", "--target", "efa-pytorch")
    completed = task(tmp_path, *words, by=UNPRIVILEGED, **{name: str(secret)})
    assert_reported(completed, f"{secret}: Permission denied\nlet user ")


@pytest.mark.parametrize("state", ["a-file", "a-file/below", "unreadable/below", "x" * 300])
def test_a_state_folder_that_cannot_be_used_is_reported(tmp_path: Path, state: str) -> None:
    (tmp_path / "a-file").touch()
    (tmp_path / "unreadable").mkdir(mode=0)
    completed = task(tmp_path, "engine.up", DOCKER_HOST="", RDMA_IMAGES_STATE=str(tmp_path / state))
    assert_reported(completed, str(tmp_path / state)[:200])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user whom the machine does not know")
def test_a_user_whom_the_machine_does_not_know_is_reported_with_what_to_set(tmp_path: Path) -> None:
    variables = {"HOME": "", "RDMA_IMAGES_STATE": "", "XDG_STATE_HOME": ""}
    environ = [f"--unset={name}" for name in variables]
    completed = task(tmp_path, "engine.status", by=[*NOBODY, "env", *environ])
    assert_reported(completed, "user 54321 has no home folder")
    assert "set RDMA_IMAGES_STATE" in completed.stderr
    assert task(tmp_path, "plan", by=[*NOBODY, "env", *environ]).returncode == 0


def write_latin(folder: Path) -> str:
    (folder / "latin").write_bytes(b"pass\xe9word")
    return str(folder / "latin")


REFERENCES: list[tuple[Callable[[Path], str], str]] = [
    (lambda _: "~nosuch/x", "~nosuch has no home folder"),
    (lambda _: "/a\\0b", "no file can have this name"),
    (lambda folder: str(folder), "Is a directory"),
    (lambda _: "/" + "x" * 300, "too long"),
    (write_latin, "byte 5 is not UTF-8"),
]


PROGRAM = [sys.executable, "-c", "from rdma_images.cli.program import main; main()"]


@pytest.mark.parametrize("words", [("--print-completion-script", "bash"), ("--list",)])
def test_a_reader_that_has_seen_enough_is_no_error(words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    completed = subprocess.run([*PROGRAM, *words], cwd=paths.PROJECT, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (completed.returncode, completed.stderr) == (141, "")


def test_a_program_that_is_not_installed_is_not_reported_as_a_file() -> None:
    message = r"^no-such-program: no such program on PATH\ninstall it$"
    with pytest.raises(files.FileError, match=message), files.raising_file_error():
        subprocess.run(["no-such-program", "--version"], check=False)
    with pytest.raises(files.FileError, match=r"no-such-file: No such file"), files.raising_file_error():
        Path("no-such-file").read_text(encoding="utf-8")


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(files.FileError, match="/dev/zero: has more than 16 MiB\n"):
        files.read_text(Path("/dev/zero"))


def test_a_pipe_that_nothing_writes_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.yaml")
    with pytest.raises(files.FileError, match="is a named pipe"):
        files.read_text(tmp_path / "job.yaml")


def test_what_a_program_writes_into_a_pipe_is_read() -> None:
    """As of `invoke job.check <(kubectl get mpijob train -o yaml)`."""
    reading, writing = os.pipe()
    os.write(writing, b"kind: MPIJob\n")
    os.close(writing)
    assert files.read_text(Path(f"/dev/fd/{reading}")) == "kind: MPIJob\n"
    os.close(reading)
