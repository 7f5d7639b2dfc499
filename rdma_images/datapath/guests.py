"""Run two guests with the same image and a wire between them, and find the RDMA files of the image in them."""

import contextlib
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rdma_images.datapath.disk import ImageDisk
from rdma_images.datapath.guest import Guest, TaskResult
from rdma_images.datapath.guest_files import GuestFiles
from rdma_images.datapath.rdma_files import OUTSIDE, SHELL, ImageRdmaFiles, collect_command, parse

ADDRESSES = ("192.168.111.1", "192.168.111.2")  # as in the guests' own init

# Where EFA's installer puts programs, whether or not an image has that on its PATH; then those from outside.
FURTHER_PATH = ("/opt/amazon/efa/bin", "/opt/amazon/openmpi/bin", "/opt/amazon/openmpi5/bin", OUTSIDE)

# What container runtimes withhold from root and would matter here: with CAP_IPC_LOCK no memlock limit ever bites.
WITHHELD = "cap_ipc_lock,cap_net_admin,cap_sys_admin,cap_sys_rawio,cap_sys_resource"


@dataclass(frozen=True)
class GuestSession:
    """Settings with which programs of the image run: user, environment and limits."""

    environment: dict[str, str]
    uid: int = 0
    gid: int = 0
    memlock: str = "unlimited"  # KiB or "unlimited", the format of `ulimit -l`

    def script(self, command: str) -> str:
        """Return a script that runs a shell command as a container runtime would.

        The shell is not the image's, which may have none; and no shell could set a variable like `my.setting`.
        """
        capsh_options = f"--chroot=/image --drop={WITHHELD} --gid={self.gid} --groups= --uid={self.uid}"
        variables = (f"{name}={value}" for name, value in self.environment.items())
        program = shlex.join(("env", "-i", "--", *variables, SHELL, "-c", command))
        return f"ulimit -l {self.memlock}\nexec /bin/capsh {capsh_options} --shell={OUTSIDE}/busybox -- {program}"


@dataclass(frozen=True)
class TwoGuests:
    """Two running guests, the first as server, the second as client.

    `login` is what a login of the image's user may lock, None where nobody can log in;
    `libfabric` is the list of providers of the image's libfabric, None where there is none.
    """

    server: Guest
    client: Guest
    session: GuestSession
    rdma_files: ImageRdmaFiles
    login: TaskResult | None = None
    libfabric: TaskResult | None = None

    def run(self, command: str, seconds: float) -> TaskResult:
        """Run a shell command in the image, in the first guest, for at most `seconds`."""
        return self.server.run(self.session.script(command), seconds)


@contextlib.contextmanager
def start_guests(guest_files: GuestFiles, disk: ImageDisk) -> Iterator[tuple[Guest, Guest]]:
    """Start both guests.

    Their wire is a pair of datagram sockets: a full one makes the sender wait, so no packet is lost.
    """
    sockets = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sockets[0] as first_socket, sockets[1] as second_socket, contextlib.ExitStack() as stack:
        first = stack.enter_context(Guest(guest_files, ADDRESSES[0], disk.descriptor, first_socket.fileno()))
        second = stack.enter_context(Guest(guest_files, ADDRESSES[1], disk.descriptor, second_socket.fileno()))
        yield first, second


def ready_guests(pair: tuple[Guest, Guest], disk: ImageDisk) -> TwoGuests:
    """Return both guests with the RDMA files of the image, once they are ready.

    Raises NoGuestError or GuestError when one does not start.
    """
    for guest in pair:
        guest.ready()
    path = ":".join((disk.environment["PATH"], *FURTHER_PATH))
    command = f"PATH={shlex.quote(path)} exec chroot /image {collect_command(disk.user)}"
    rdma_files = parse(pair[0].run(command, 30).output)
    login = _login(pair[0], rdma_files)
    session = GuestSession(
        without_refusal(disk.environment) | {"PATH": path},
        *rdma_files.user[1:],
        memlock=parse_memlock(login) or "unlimited",
    )
    provider_list = pair[0].run(session.script("exec fi_info -l"), 30) if rdma_files.libfabric else None
    return TwoGuests(*pair, session, rdma_files, login, provider_list)


def without_refusal(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an image's environment without FI_PROVIDER=efa.

    No guest has an EFA, and libfabric refuses all else.
    """
    return {name: value for name, value in environment.items() if (name, value) != ("FI_PROVIDER", "efa")}


def parse_memlock(login: TaskResult | None) -> str | None:
    """Return the limit that a login answered with, in the form of `ulimit -l`; None where it answered otherwise."""
    values = re.findall(r"^(?:unlimited|\d+)$", login.output, re.MULTILINE) if login and login.status == 0 else []
    return values[-1] if values else None


def _login(guest: Guest, rdma_files: ImageRdmaFiles) -> TaskResult | None:
    """Return the limit that the image's own su leaves a login, as sshd leaves ranks."""
    if not rdma_files.is_from_image("su"):
        return None
    login = shlex.join((rdma_files.tools["su"], "-l", "-s", SHELL, rdma_files.user[0], "-c", "ulimit -l"))
    return guest.run(f"exec chroot /image {login}", 20)
