"""Find which RDMA libraries and programs an image has, from its files in a guest, before any of them runs."""

import shlex
from dataclasses import dataclass

from rdma_images.datapath.packages import TOOLS

# Tools that come only with the image: what they link to is not in every image.
IMAGE_TOOLS = ("ib_write_bw", "mpirun", "su")
OUTSIDE = "/.datapath/bin"
SHELL = f"{OUTSIDE}/sh"


@dataclass(frozen=True)
class ImageRdmaFiles:
    """The image's RDMA files.

    `copies` are the files of libibverbs with their sha256, `loaded` the one that programs get. `patterns` are the file
    names under which it looks for a provider, with "%s" for its name; `drivers` the names it is configured with;
    `providers` the files that are named as providers, of whatever version. `tools` are the paths of those present.
    """

    copies: dict[str, str]
    loaded: str | None
    patterns: tuple[str, ...]
    drivers: tuple[str, ...]
    providers: tuple[str, ...]
    libfabric: tuple[str, ...]
    tools: dict[str, str]
    user: tuple[str, int, int]  # name, uid, gid

    def is_from_image(self, tool: str) -> bool:
        """Return whether the tool is the image's, not one from outside."""
        return tool in self.tools and not self.tools[tool].startswith(OUTSIDE)


def collect_command(user: str) -> str:
    """Return the command whose output `parse` takes; `user` as in an image's configuration."""
    return shlex.join((f"{OUTSIDE}/rdma-files", user.partition(":")[0], *TOOLS, *IMAGE_TOOLS))


def parse(text: str) -> ImageRdmaFiles:
    """Return the RDMA files that the guest listed. No file name of an image stops it."""
    lines = [(word, value) for word, _, value in (line.partition(" ") for line in text.splitlines()) if value]

    def values(kind: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value for word, value in lines if word == kind))

    def pairs(kind: str) -> tuple[tuple[str, str], ...]:
        return tuple((first, second) for first, _, second in (value.partition(" ") for value in values(kind)))

    return ImageRdmaFiles(
        copies={path: digest for digest, path in pairs("copy")},
        loaded=next(iter(values("loaded")), None),
        patterns=values("pattern"),
        drivers=values("driver"),
        providers=values("provider"),
        libfabric=values("libfabric"),
        tools=dict(pairs("tool")),
        user=_user(next(iter(values("user")), "root 0 0")),
    )


def _user(text: str) -> tuple[str, int, int]:
    """Return name, uid and gid from "name uid gid".

    As for a container runtime, text that is no number counts as 0.
    """
    name, *numbers = text.rsplit(" ", 2)
    uid, gid = (int(number) if number.isdecimal() else 0 for number in (*numbers, "", "")[:2])
    return name, uid, gid
