"""The wire to a guest, with a program in QEMU's place that says what a guest would."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rdma_images.datapath.guest import OPENING, Guest, GuestError, NoGuestError
from rdma_images.datapath.guest_files import GuestFiles

# Takes the wire from its command line as QEMU does, and then does what the test says.
PLAYED = """
import base64, os, re, socket, sys
wire = socket.socket(fileno=int(re.search(r"id=wire,fd=(\\d+)", " ".join(sys.argv))[1]))
lines = wire.makefile("rb")
def say(number, status, text):
    wire.sendall(b"%d %d %s\\n" % (number, status, base64.b64encode(text.encode())))
def heard():
    number, seconds, script = lines.readline().split()
    return int(number), int(seconds), base64.b64decode(script).decode()
"""


@pytest.fixture
def guest(tmp_path: Path) -> Callable[[str], Guest]:
    def played(script: str) -> Guest:
        program = tmp_path / "qemu.py"
        program.write_text(PLAYED + script)
        files = GuestFiles((sys.executable, str(program)), (), (), kernel=Path("vmlinuz"), initramfs=Path("initramfs"))
        return Guest(files, "192.168.111.1", disk=0, link=0)

    return played


def test_a_guest_that_ends_says_why_with_the_end_of_its_console(guest: Callable[[str], Guest]) -> None:
    console = f"{OPENING}\\nmount failed\\n\\nreboot: Power down"
    with guest(f"print('{console}', flush=True)") as running:
        with pytest.raises(GuestError, match=r"ended by itself; .* console: .* / mount failed / reboot"):
            running.ready()
        assert "mount failed" in running.console()


def test_a_guest_that_never_reached_the_images_files_is_no_guest(
    guest: Callable[[str], Guest], monkeypatch: pytest.MonkeyPatch
) -> None:
    with guest("print('Kernel panic', flush=True)") as running, pytest.raises(NoGuestError, match="Kernel panic"):
        running.ready()
    monkeypatch.setattr("rdma_images.datapath.guest.BOOT_SECONDS", 0.2)
    slow = f"print('{OPENING}', flush=True)\nheard()"
    with guest(slow) as running, pytest.raises(NoGuestError, match="did not answer in time"):
        running.ready()


@pytest.mark.parametrize("expected", [b"\n", b"x y z\n", b"1 0 a\n", b"1\n"])
def test_an_invalid_answer_ends_the_validation_and_not_this_program(
    guest: Callable[[str], Guest], expected: bytes
) -> None:
    with guest(f"say(0, 0, '1 0')\nheard()\nwire.sendall({expected!r})\nheard()") as running:
        running.ready()
        with pytest.raises(GuestError, match="an invalid answer"):
            running.run("true", 5)


def test_a_guest_that_is_gone_takes_no_task(guest: Callable[[str], Guest]) -> None:
    with guest("say(0, 0, '1 0')") as running:
        running.ready()
        running._process.wait()
        with pytest.raises(GuestError, match=r"no longer answers|ended by itself"):
            running.run("true", 5)


def test_a_silent_guest_is_not_waited_for_for_ever(
    guest: Callable[[str], Guest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdma_images.datapath.guest.GRACE_SECONDS", 0)
    with guest("say(0, 0, '1 0')\nheard()\nheard()") as running:
        running.ready()
        with pytest.raises(GuestError, match="did not answer in time"):
            running.run("sleep", 0.2)
