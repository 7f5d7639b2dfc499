"""Two guests with the same image, a wire between them, and what was measured in them before anything is checked."""

import contextlib
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rdma_images.datapath import survey
from rdma_images.datapath.disk import Disk
from rdma_images.datapath.guest import Answer, Guest, Machine
from rdma_images.datapath.survey import OUTSIDE, SHELL, Survey

ADDRESSES = ("192.168.111.1", "192.168.111.2")  # as in the guests' own init

# Where EFA's installer puts programs, whether or not an image has that on its PATH; then those from outside.
FURTHER_PATH = ("/opt/amazon/efa/bin", "/opt/amazon/openmpi/bin", "/opt/amazon/openmpi5/bin", OUTSIDE)

# What container runtimes withhold from root and would matter here: with CAP_IPC_LOCK no memlock limit ever bites.
WITHHELD = "cap_ipc_lock,cap_net_admin,cap_sys_admin,cap_sys_rawio,cap_sys_resource"


@dataclass(frozen=True)
class Session:
    """How programs of the image are run: as which user, with which environment and limit."""

    environment: dict[str, str]
    uid: int = 0
    gid: int = 0
    memlock: str = "unlimited"  # KiB, or "unlimited", as `ulimit -l` has it

    def script(self, command: str) -> str:
        """A script for a guest that runs a shell command in the image as a container runtime would.

        The shell is not the image's, which may have none; and no shell could set a variable like `my.setting`.
        """
        entered = f"--chroot=/image --drop={WITHHELD} --gid={self.gid} --groups= --uid={self.uid}"
        variables = (f"{name}={value}" for name, value in self.environment.items())
        program = shlex.join(("env", "-i", "--", *variables, SHELL, "-c", command))
        return f"ulimit -l {self.memlock}\nexec /bin/capsh {entered} --shell={OUTSIDE}/busybox -- {program}"


@dataclass(frozen=True)
class Lab:
    """Two running guests, the first as server, the second as client.

    `login` is how a login of the image's user answered the question what it may lock, None where nobody can log in;
    `libfabric` is how the image's libfabric answered the question for its providers, None where there is none.
    """

    server: Guest
    client: Guest
    session: Session
    survey: Survey
    login: Answer | None = None
    libfabric: Answer | None = None

    def run(self, command: str, seconds: float) -> Answer:
        """A shell command in the image, in the first guest, for at most `seconds`."""
        return self.server.run(self.session.script(command), seconds)


@contextlib.contextmanager
def guests(machine: Machine, disk: Disk) -> Iterator[tuple[Guest, Guest]]:
    """Both guests, starting. Their wire is a pair of datagram sockets: a full one makes the sender wait, so no packet
    is lost.
    """
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ends[0] as left, ends[1] as right, contextlib.ExitStack() as started:
        first = started.enter_context(Guest(machine, ADDRESSES[0], disk.descriptor, left.fileno()))
        second = started.enter_context(Guest(machine, ADDRESSES[1], disk.descriptor, right.fileno()))
        yield first, second


def lab(pair: tuple[Guest, Guest], disk: Disk) -> Lab:
    """The lab of two guests, once both are ready. Raises NoGuestError or GuestError when one does not get there."""
    for guest in pair:
        guest.ready()
    path = ":".join((disk.environment["PATH"], *FURTHER_PATH))
    asked = f"PATH={shlex.quote(path)} exec chroot /image {survey.command(disk.user)}"
    found = survey.parse(pair[0].run(asked, 30).output)
    login = _login(pair[0], found)
    session = Session(
        without_refusal(disk.environment) | {"PATH": path}, *found.user[1:], memlock=limit(login) or "unlimited"
    )
    listed = pair[0].run(session.script("exec fi_info -l"), 30) if found.libfabric else None
    return Lab(*pair, session, found, login, listed)


def without_refusal(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of an image without its FI_PROVIDER=efa: no guest has an EFA, and libfabric refuses all else."""
    return {name: value for name, value in environment.items() if (name, value) != ("FI_PROVIDER", "efa")}


def limit(login: Answer | None) -> str | None:
    """The limit that a login answered with, as `ulimit -l` has it; None where it did not answer that."""
    said = re.findall(r"^(?:unlimited|\d+)$", login.output, re.MULTILINE) if login and login.status == 0 else []
    return said[-1] if said else None


def _login(guest: Guest, found: Survey) -> Answer | None:
    """What the image's own su, with its PAM and limits, leaves a login: the same as sshd leaves the ranks of a job."""
    if not found.own("su"):
        return None
    login = shlex.join((found.tools["su"], "-l", "-s", SHELL, found.user[0], "-c", "ulimit -l"))
    return guest.run(f"exec chroot /image {login}", 20)
