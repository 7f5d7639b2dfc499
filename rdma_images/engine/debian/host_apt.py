"""The Debian archives of this host's apt, and its settings for reaching them."""

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError

ROLLING = ("sid", "unstable")  # one suite: what updates and fixes it is uploaded to it
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"  # of the package debian-archive-keyring, which apt needs


@dataclass(frozen=True)
class Archive:
    """One archive and suite of apt; `signed_by` is a keyring's path, or the key itself."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str


@dataclass(frozen=True)
class DebianArchives:
    """The Debian archive of this host."""

    codename: str  # of the host's own suite, "bookworm"
    main: Archive
    security: Archive | None

    def sources(self, suite: str) -> str:
        """Return the apt sources (deb822) of `suite`, with its updates, in these archives."""
        rolling = suite in ROLLING
        stanzas = [(self.main, suite if rolling else f"{suite} {suite}-updates")]
        if self.security and not rolling:
            stanzas.append((self.security, f"{suite}-security"))
        return "\n".join(
            f"Types: deb\nURIs: {archive.uri}\nSuites: {suites}\nComponents: main\nSigned-By: {archive.signed_by}\n"
            for archive, suites in stanzas
        )


def host_archives(etc: Path = Path("/etc")) -> DebianArchives:
    """Return this host's Debian archives. Raises RdmaImagesError where it has none."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', _read_text(etc / "os-release"), re.MULTILINE))
    codename = release.get("VERSION_CODENAME", "")
    if release.get("ID") != "debian" or not codename:
        raise RdmaImagesError(
            f"this host is {release.get('PRETTY_NAME', 'not Debian')}, and only Debian's apt names the archive\n"
            "install Docker 24 or later with buildx, or run on Debian"
        )
    return choose_archives(list(read_archives(etc / "apt")), codename, f"{etc}/apt")


def choose_archives(archives: Sequence[Archive], codename: str, folder_name: str) -> DebianArchives:
    """Return Debian's own of `archives`. Raises RdmaImagesError where none has the suite."""
    main = [a for a in archives if a.suite == codename and "main" in a.components]
    security = [a for a in archives if a.suite == f"{codename}-security"]
    if not main:
        raise RdmaImagesError(
            f"{folder_name} names no archive with the suite {codename} and the component main\nadd it there"
        )
    # A vendor's repository may use Debian's suite name: Debian's own has its updates beside it.
    updates = {a.uri for a in archives if a.suite == f"{codename}-updates"}
    return DebianArchives(codename, next((a for a in main if a.uri in updates), main[0]), next(iter(security), None))


def read_archives(etc_apt: Path) -> Iterator[Archive]:
    """Yield all archives of sources.list and sources.list.d, in apt's order."""
    yield from list_archives(_read_text(etc_apt / "sources.list").splitlines())
    folder = etc_apt / "sources.list.d"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix == ".list":
            yield from list_archives(_read_text(path).splitlines())
        elif path.suffix == ".sources":
            yield from deb822_archives(_read_text(path))


def list_archives(lines: Iterable[str]) -> Iterator[Archive]:
    """Yield the archives of the one-line format, sources.list(5)."""
    for line in lines:
        match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s*)?(\S+)\s+(\S+)\s+([^#]*)", line)
        if match:
            options, uri, suite, components = match.groups()
            signed = re.search(r"signed-by=(\S+)", options or "", re.IGNORECASE)
            yield Archive(uri, suite, tuple(components.split()), signed[1] if signed else KEYRING)


def deb822_archives(text: str) -> Iterator[Archive]:
    """Yield the archives of the deb822 format, sources.list(5)."""
    text = re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE)
    for stanza in re.split(r"\n\s*\n", text):
        fields = {
            name.lower(): value.rstrip()
            for name, value in re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE)
        }
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                components = tuple(fields.get("components", "").split())
                yield Archive(uri, suite, components, fields.get("signed-by", KEYRING))


def acquire_settings() -> str:
    """Return the network settings of this host's apt, as lines of apt.conf.

    The rest of its configuration is left out: the host's hooks must not run for packages of another folder.
    """
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    return "".join(f"{line}\n" for line in dump.splitlines() if line.startswith("Acquire::"))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
