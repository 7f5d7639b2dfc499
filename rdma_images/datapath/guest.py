"""One small virtual machine with an image's files, and the wire that brings it commands."""

import base64
import os
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rdma_images.core.errors import RdmaImagesError
from rdma_images.datapath.guest_files import GuestFiles

BOOT_SECONDS = 90  # an emulated boot takes 4 s alone on a core; a loaded CI machine is allowed 20 times that
GUEST_MEMORY_MIB = 512  # MiB a guest
GRACE_SECONDS = 30  # beyond a task's own limit, which the guest keeps: a loaded machine can stop it for seconds
MAX_ANSWER_BYTES = 16 * 1024 * 1024  # bytes of an answer
OPENING = "opening the image"  # what guest/init says before it touches the image's files


class GuestError(RdmaImagesError):
    """A guest ended before its work was done, or does not answer."""


class GuestTimeoutError(GuestError):
    """A guest did not answer in time."""


class NoGuestError(RdmaImagesError):
    """A guest did not reach the image's files, which is not the image's fault."""


@dataclass(frozen=True)
class TaskResult:
    """The result of a task in a guest.

    `status` is its exit status; 137 where it was stopped at its time limit. `output` has its standard error last.
    """

    status: int
    output: str


@dataclass
class Guest:
    """A running guest; use it as a context manager.

    `disk` is an open, read-only file descriptor of the image's filesystem, `link` one end of a socket pair that
    carries Ethernet frames. The guest reaches nothing else of this machine. Nothing names it in the file system, and
    it ends when its wire closes: no exit of this process, not even SIGKILL, leaves one behind.
    """

    files: GuestFiles
    address: str
    disk: int
    link: int
    _results: dict[int, TaskResult] = field(default_factory=dict)
    _last_task: int = 0

    def __enter__(self) -> Self:
        self._console = tempfile.TemporaryFile()
        self._wire, guest_end = socket.socketpair()
        with guest_end:
            try:
                self._process = subprocess.Popen(
                    self._command(guest_end.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=self._console,
                    stderr=subprocess.STDOUT,
                    pass_fds=(guest_end.fileno(), self.disk, self.link),
                    start_new_session=True,  # Ctrl-C reaches this process only, which then ends the guest
                )
            except OSError as error:
                self._wire.close()
                self._console.close()
                raise NoGuestError(f"{self.files.qemu[0]} cannot be started: {error.strerror}") from None
        self._lines = self._wire.makefile("rb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._lines.close()
        self._wire.close()
        self._console.close()

    def ready(self) -> float:
        """Wait until the guest takes tasks. Returns the seconds of its own clock.

        Raises NoGuestError where emulator, kernel or the time for them fell short, GuestError where the image did.
        """
        try:
            self._wait(0, time.monotonic() + BOOT_SECONDS)
        except GuestError as error:
            if isinstance(error, GuestTimeoutError) or OPENING not in self.console():
                raise NoGuestError(str(error)) from None
            raise
        return float(self._results.pop(0).output.split()[0])

    def start(self, script: str, seconds: float) -> int:
        """Start a shell script in the guest, and return its number.

        It may run for `seconds`; `wait_for_result` takes the number. Raises GuestError when the guest is gone.
        """
        self._last_task += 1
        task = base64.b64encode(script.encode()).decode()
        self._wire.settimeout(GRACE_SECONDS)
        try:
            self._wire.sendall(f"{self._last_task} {seconds:.0f} {task}\n".encode())
        except OSError:
            raise GuestError(f"guest {self.address} no longer answers; {self._last_words()}") from None
        return self._last_task

    def wait_for_result(self, number: int, seconds: float) -> TaskResult:
        """Return the result of a task, in at most `seconds` and some grace. Raises GuestError if the guest is gone."""
        self._wait(number, time.monotonic() + seconds + GRACE_SECONDS)
        return self._results.pop(number)

    def run(self, script: str, seconds: float) -> TaskResult:
        """Run a script, and return its result."""
        return self.wait_for_result(self.start(script, seconds), seconds)

    def console(self) -> str:
        """Return all that the guest's kernel and first process, and QEMU itself, have said."""
        size = os.fstat(self._console.fileno()).st_size
        return os.pread(self._console.fileno(), size, 0).decode(errors="replace").replace("\r\n", "\n")

    def _wait(self, number: int, deadline: float) -> None:
        """Read answers until the one asked for is there."""
        while number not in self._results:
            self._wire.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                line = self._lines.readline(MAX_ANSWER_BYTES)
            except TimeoutError:
                raise GuestTimeoutError(f"guest {self.address} did not answer in time; {self._last_words()}") from None
            except ConnectionResetError:
                line = b""
            if not line:
                raise GuestError(f"guest {self.address} ended by itself; {self._last_words()}")
            try:
                key, status, *output = line.split()
                text = base64.b64decode(output[0]).decode(errors="replace") if output else ""
                self._results[int(key)] = TaskResult(int(status), text)
            except ValueError:  # the image's programs can reach the wire, too
                raise GuestError(f"guest {self.address} sent an invalid answer: {line[:60]!r}") from None

    def _last_words(self) -> str:
        lines = [line.strip() for line in self.console().splitlines() if line.strip()]
        return f"the last of its console: {' / '.join(lines[-3:]) or '(nothing)'}"

    def _command(self, wire: int) -> list[str]:
        """Return the QEMU command: one core, no device that is not used, no network but the link."""
        number = int(self.address.rpartition(".")[2])
        return [
            *self.files.qemu,
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-sandbox", "on,spawn=deny,resourcecontrol=deny"),
            *(("-run-with", "user=65534:65534") if os.geteuid() == 0 else ()),  # nobody, once all is open
            *("-machine", "q35,accel=tcg", "-cpu", "max", "-m", str(GUEST_MEMORY_MIB)),
            *("-kernel", str(self.files.kernel), "-initrd", str(self.files.initramfs)),
            *("-append", f"console=ttyS0 quiet panic=-1 mitigations=off address={self.address}"),
            *("-serial", "stdio"),
            *("-add-fd", f"fd={self.disk},set=1"),
            *("-blockdev", "file,node-name=image,filename=/dev/fdset/1,read-only=on"),
            *("-device", "virtio-blk-pci,drive=image"),
            *("-netdev", f"dgram,id=link,local.type=fd,local.str={self.link}"),
            *("-device", f"virtio-net-pci,netdev=link,romfile=,host_mtu=9000,mac=52:54:00:00:00:{number:02x}"),
            *("-chardev", f"socket,id=wire,fd={wire}"),
            *("-device", "virtio-serial-pci,max_ports=2", "-device", "virtserialport,chardev=wire,nr=1"),
        ]
