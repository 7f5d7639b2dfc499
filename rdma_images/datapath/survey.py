"""What of RDMA an image has, as its files say: found out in a guest, before anything of it runs."""

from dataclasses import dataclass

from rdma_images.datapath.packages import TOOLS

# Tools that come only with the image: what they link to is not in every image.
OWN_TOOLS = ("ib_write_bw", "mpirun", "su")
OUTSIDE = "/.datapath/bin"


@dataclass(frozen=True)
class Survey:
    """The image's RDMA files.

    `copies` are the files of libibverbs with their sha256, `loaded` the one that programs get. `patterns` are the file
    names under which it looks for a provider, with "%s" for its name; `drivers` the names it is configured with;
    `providers` the files that are named as providers, of whatever version. `tools` are the paths of those found.
    """

    copies: dict[str, str]
    loaded: str | None
    patterns: tuple[str, ...]
    drivers: tuple[str, ...]
    providers: tuple[str, ...]
    libfabric: tuple[str, ...]
    tools: dict[str, str]
    user: tuple[str, int, int]  # name, uid, gid

    def own(self, tool: str) -> bool:
        """The tool is the image's, not one from outside."""
        return tool in self.tools and not self.tools[tool].startswith(OUTSIDE)


def command(user: str) -> str:
    """The command whose output `parse` takes; `user` as in an image's configuration."""
    return f"{OUTSIDE}/survey {user.partition(':')[0]} {' '.join((*TOOLS, *OWN_TOOLS))}"


def parse(text: str) -> Survey:
    """The survey as the guest wrote it down."""
    lines = [line.split() for line in text.splitlines() if line]
    users = [(name, int(uid), int(gid)) for word, name, uid, gid in (line for line in lines if line[0] == "user")]

    def all_of(word: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line[1] for line in lines if line[0] == word))

    return Survey(
        copies={line[1]: line[2] for line in lines if line[0] == "copy"},
        loaded=next(iter(all_of("loaded")), None),
        patterns=all_of("pattern"),
        drivers=all_of("driver"),
        providers=all_of("provider"),
        libfabric=all_of("libfabric"),
        tools={line[1]: line[2] for line in lines if line[0] == "tool"},
        user=users[0] if users else ("root", 0, 0),
    )
