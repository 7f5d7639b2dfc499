"""What is known about aws-ofi-nccl, the plugin through which NCCL uses libfabric."""

from rdma_images.facts.origin import FactsFile, Row, Span, Version


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


class CudaFixes(Row):
    """The first plugin whose notes name fixes for a CUDA major: of older ones nobody says that they work with it."""

    major: int
    plugin: Version


class Tarball(Span):
    """Where the release tarballs of some versions are, those with `configure`; {version} stands for the version."""

    url: str


class Plugin(FactsFile):
    """facts/aws-ofi-nccl.yaml."""

    releases: dict[Version, PluginRelease]
    net_names: tuple[NetName, ...]
    files: tuple[InstalledFile, ...]
    configure: tuple[Switch, ...]
    tarballs: tuple[Tarball, ...]
    cuda_fixes: tuple[CudaFixes, ...]

    def net_name(self, version: str) -> str:
        """The name under which this plugin version registers with NCCL."""
        return next(known.name for known in self.net_names if known.holds(version))
