"""Commands in real containers: exit codes, signals, input, a terminal, no leftovers."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.build.container_run import LABEL
from rdma_images.core import paths
from rdma_images.engine import Engine
from rdma_images.engine.debian import bootstrap

pytestmark = [pytest.mark.e2e, pytest.mark.part("small-images")]
REF = "rdma-images-test/run:small"
RUN = [sys.executable, "-m", "invoke", "run", "--image", REF]
PATIENCE = 60.0  # seconds for a container to start or to go; 0.3 on an idle machine


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Yield an engine with a small image of EFA's label: Debian without anything else."""
    running = engines.ensure()
    label = "--change=LABEL io.rdma-images.fabric=efa"
    docker(running, "import", label, str(bootstrap.base_tar("debian13")), REF)
    yield running
    docker(running, "image", "rm", REF)


def docker(engine: Engine, *arguments: str) -> str:
    return subprocess.run(
        ["docker", *arguments], env=engine.environ(), capture_output=True, text=True, check=True
    ).stdout


def containers(engine: Engine) -> list[str]:
    return docker(engine, "ps", "--all", "--quiet", "--filter", f"label={LABEL}={REF}").split()


def wait_for(engine: Engine, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(containers(engine)) != count:
        assert time.monotonic() < deadline, docker(engine, "ps", "--all")
        time.sleep(0.1)


def run(*words: str, stdin: str = "", options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, *options, "--", *words], cwd=paths.PROJECT, input=stdin, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("words", "code"), [(["true"], 0), (["sh", "-c", "exit 3"], 3), (["no-such-program"], 127), (["/etc/passwd"], 126)]
)
def test_the_exit_code_is_the_commands(engine: Engine, words: list[str], code: int) -> None:
    assert run(*words).returncode == code
    assert containers(engine) == []


def test_words_and_standard_input_arrive_as_they_are(engine: Engine) -> None:
    done = run("sh", "-c", 'printf "%s|" "$@"; cat', "sh", "a b", "$HOME", "--", "", stdin="one\r\ntwo")
    assert done.stdout == "a b|$HOME|--||one\ntwo"  # text=True reads \r\n as one end of a line
    assert containers(engine) == []


def test_a_mount_and_a_variable(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("content")
    tmp_path.chmod(0o755)
    options = ("--mount", f"{tmp_path}:/data:ro", "--env", "A=b c")
    done = run("sh", "-c", 'cat /data/in; echo " $A"; touch /data/out', options=options)
    assert (done.returncode, done.stdout) == (1, "content b c\n")
    assert "Read-only file system" in done.stderr
    assert containers(engine) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_command(engine: Engine, number: signal.Signals) -> None:
    """The engine starts an init: a command that is process 1 itself ignores the signal."""
    command = [*RUN, "--", "sh", "-c", "echo runs; exec sleep 600"]
    process = subprocess.Popen(command, cwd=paths.PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"runs\n"
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
    finally:
        process.kill()
    wait_for(engine, 0)


def test_ctrl_c_in_a_terminal_reaches_the_command(engine: Engine) -> None:
    master, terminal = pty.openpty()
    command = [*RUN, "--", "sh", "-c", "trap 'echo stopped; exit 7' INT; tty; while :; do sleep 0.1; done"]
    process = subprocess.Popen(command, cwd=paths.PROJECT, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    try:
        read_until(master, b"/dev/pts")
        os.write(master, b"\x03")
        assert b"stopped" in read_until(master, b"stopped")
        assert process.wait(PATIENCE) == 7
    finally:
        process.kill()
        os.close(master)
    wait_for(engine, 0)


def read_until(descriptor: int, words: bytes) -> bytes:
    text = b""
    deadline = time.monotonic() + PATIENCE
    while words not in text:
        assert time.monotonic() < deadline, text
        text += os.read(descriptor, 1000)
    return text


def test_a_killed_client_leaves_a_container_that_goes_when_its_command_ends(engine: Engine, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    script = "touch /data/runs; while [ -e /data/runs ]; do sleep 0.1; done"
    command = [*RUN, "--mount", f"{tmp_path}:/data", "--", "sh", "-c", script]
    process = subprocess.Popen(command, cwd=paths.PROJECT, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "runs").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert containers(engine)
    (tmp_path / "runs").unlink()
    wait_for(engine, 0)


def test_a_shell_reads_standard_input(engine: Engine) -> None:
    command = [sys.executable, "-m", "invoke", "run", "--shell", "--image", REF]
    done = subprocess.run(
        command, cwd=paths.PROJECT, input="echo $0 $((6 * 7)); exit 5", capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (5, "bash 42\n")
    assert containers(engine) == []


@pytest.mark.usefixtures("engine")
def test_an_image_without_a_command_of_its_own_needs_one() -> None:
    done = subprocess.run(RUN, cwd=paths.PROJECT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{REF} has no command of its own\nwrite one after --, or add --shell\n"


@pytest.mark.usefixtures("engine")
def test_an_image_that_is_not_there_is_one_sentence() -> None:
    command = [sys.executable, "-m", "invoke", "run", "--image", "rdma-images-test/no:such", "--", "true"]
    done = subprocess.run(command, cwd=paths.PROJECT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2
    assert re.match(r"the engine \w+ \(\S+\) has no image rdma-images-test/no:such\n.*docker pull", done.stderr)
