"""What is known about aws-ofi-nccl, the plugin through which NCCL uses libfabric."""

from collections.abc import Iterator, Mapping, Sequence

from rdma_images.core.versions import at_least
from rdma_images.core.yaml_file import Path_
from rdma_images.facts.origin import FactsFile, Row, Span, Version, VersionUrl

NAME = "aws-ofi-nccl"


class PluginRelease(Row):
    """One release. What is not stated is not known."""

    min_nccl: Version | None = None
    min_libfabric: Version | None = None  # of a build for AWS
    tested_nccl: tuple[Version, ...] = ()
    net: int | None = None  # the newest net ABI version known to be exported; older ones are too
    sha512: str | None = None  # of the release tarball, the one that has `configure`
    broken: str | None = None  # why not to take it
    broken_from_installer: Version | None = None  # broken with this EFA installer and newer ones only


class NetName(Span):
    """The name under which NCCL knows the plugin: what NCCL_NET must say."""

    name: str


class InstalledFile(Span):
    """A file that the plugin installs, relative to its prefix."""

    path: str
    link_to: str | None = None


class Switch(Span):
    """A switch of the plugin's configure, and why an image is built with it."""

    switch: str
    why: str


class Platform(Span):
    """What a plugin for EFA is built with: its name, and the words before it in what configure says at its end."""

    name: str
    says: tuple[str, ...]


class CudaFixes(Row):
    """The first plugin whose notes name fixes for a CUDA major: of older ones it is not known."""

    major: int
    plugin: Version


class Tarball(Span):
    """Where the release tarballs of some versions are, those with `configure`; {version} stands for the version."""

    url: VersionUrl


class Asked(Span):
    """The oldest libfabric with which some versions of the plugin take the provider efa."""

    libfabric: Version


class KnownFault(Span):
    """What does not work in some versions of the component `of`: alone, on a machine, or beside NCCL or the plugin."""

    of: str
    nccl_since: Version | None = None
    nccl_before: Version | None = None
    plugin_since: Version | None = None
    machine: str | None = None  # as ELF files call it
    unless: str | None = None  # "NAME=value", a variable that avoids it
    only_with: str | None = None  # "NAME=value", or "NAME" for any value: a variable without which it is not so
    refuses: bool = True  # whether a plan is refused for it
    why: str
    fix: str

    def said(self, versions: Mapping[str, str], machine: str = "", environment: Mapping[str, str] | None = None) -> str:
        """What it says of these versions by component, on this machine; "" where it is not about them."""
        version, nccl = versions.get(self.of), versions.get("nccl")
        if _is_set(self.unless, environment) or (self.only_with and not _is_set(self.only_with, environment)):
            return ""
        if not version or not nccl or not self.holds(version) or self.machine not in (None, machine):
            return ""
        begun = self.nccl_since is None or at_least(nccl, self.nccl_since)
        begun &= self.plugin_since is None or at_least(versions.get("aws-ofi-nccl") or "0", self.plugin_since)
        ended = self.nccl_before is not None and at_least(nccl, self.nccl_before)
        subject = f"NCCL {nccl}" if self.of == "nccl" else f"{self.of} {version} with NCCL {nccl}"
        return f"{subject}: {self.why}" if begun and not ended else ""


def _is_set(variable: str | None, environment: Mapping[str, str] | None) -> bool:
    """Whether `variable`, "NAME=value" or "NAME" for any value but an empty one, is set."""
    name, _, value = (variable or "").partition("=")
    found = (environment or {}).get(name)
    return found == value if value else bool(found)


class Plugin(FactsFile):
    """facts/aws-ofi-nccl.yaml."""

    faults: tuple[KnownFault, ...]
    asks: tuple[Asked, ...]
    releases: dict[Version, PluginRelease]
    net_names: tuple[NetName, ...]
    files: tuple[InstalledFile, ...]
    configure: tuple[Switch, ...]
    platform: Platform
    tarballs: tuple[Tarball, ...]
    cuda_fixes: tuple[CudaFixes, ...]

    def problems(self) -> Iterator[tuple[Path_, str]]:
        """Also a release that no row gives a name, or an address."""
        yield from super().problems()
        for version in self.releases:
            tables: tuple[tuple[str, Sequence[Span]], ...] = (
                ("net-names", self.net_names),
                ("tarballs", self.tarballs),
            )
            for key, rows in tables:
                if not any(row.holds(version) for row in rows):
                    yield ("releases", version), f"no row of {key} is for {version}: add one"

    def net_name(self, version: str) -> str:
        """The name under which this plugin version registers with NCCL."""
        return next(known.name for known in self.net_names if known.holds(version))
