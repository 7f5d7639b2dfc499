"""Facts about AWS's EFA installer: its contents, its folders and its flags."""

from rdma_images.core.image import Platform
from rdma_images.facts.origin import FactsFile, Row, Version, VersionedRow, VersionUrl

NAME = "efa-installer"


class InstallerRelease(Row):
    """One release, with what it brings. What is not stated is not known."""

    libfabric: Version | None = None
    rdma_core: Version | None = None
    plugin: Version | None = None  # aws-ofi-nccl
    sha256: str | None = None  # of the tarball


class SupportedDistribution(VersionedRow):
    """Installer versions that install on a distribution."""

    distribution: str  # "debian13"


class BundledPlugin(VersionedRow):
    """Installer versions that bring the plugin on a distribution and platform."""

    distribution: str
    platform: Platform


class InstallerFlag(VersionedRow):
    """A flag of efa_installer.sh, and why an image is built with it."""

    flag: str
    why: str


class NgcTrap(VersionedRow):
    """Installers that need `flags` on a base with NVIDIA's entrypoint."""

    flags: tuple[str, ...]


class InstallerDownload(Row):
    """The address of tarballs, and their key; {version} is replaced."""

    url: VersionUrl
    signature: VersionUrl
    key: VersionUrl
    fingerprint: str


class Efa(FactsFile):
    """facts/efa-installer.yaml."""

    FILE = f"{NAME}.yaml"

    releases: dict[Version, InstallerRelease]
    supported: tuple[SupportedDistribution, ...]
    plugin_brought: tuple[BundledPlugin, ...]
    flags: tuple[InstallerFlag, ...]
    ngc_trap: NgcTrap
    download: InstallerDownload

    def flags_for(self, version: str) -> tuple[str, ...]:
        """Return what efa_installer.sh of this version is called with in an image."""
        return tuple(row.flag for row in self.flags if row.holds(version))
