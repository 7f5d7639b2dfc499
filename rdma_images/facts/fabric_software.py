"""Facts about what brings a fabric: AWS's EFA installer, aws-ofi-nccl, and Alibaba's apt repository for eRDMA."""

from rdma_images.core.image import Platform
from rdma_images.facts.facts_file import Fact, FactsFile, Version, VersionedFact, VersionUrl

EFA_INSTALLER = "efa-installer"
AWS_OFI_NCCL = "aws-ofi-nccl"


class VersionedValue(VersionedFact):
    """A name, file or option of some versions, and why an image is built with it."""

    value: str
    why: str = ""

    def __str__(self) -> str:
        return self.value


class InstallerRelease(Fact):
    """One release, with what it brings. What is not stated is not known."""

    libfabric: Version | None = None
    rdma_core: Version | None = None
    plugin: Version | None = None  # aws-ofi-nccl
    sha256: str | None = None  # of the tarball


class SupportedDistribution(VersionedFact):
    """Installer versions that install on a distribution."""

    distribution: str  # "debian13"


class BundledPlugin(VersionedFact):
    """Installer versions that bring the plugin on a distribution and platform."""

    distribution: str
    platform: Platform


class NgcEntrypointFlags(VersionedFact):
    """Installers that need `flags` on a base with NVIDIA's entrypoint."""

    flags: tuple[str, ...]


class InstallerDownload(Fact):
    """The address of tarballs, and their key; {version} is replaced."""

    url: VersionUrl
    signature: VersionUrl
    key: VersionUrl
    fingerprint: str


class Efa(FactsFile):
    """facts/efa-installer.yaml."""

    FILE = f"{EFA_INSTALLER}.yaml"

    releases: dict[Version, InstallerRelease]
    supported: tuple[SupportedDistribution, ...]
    bundled_plugins: tuple[BundledPlugin, ...]
    flags: tuple[VersionedValue, ...]  # of efa_installer.sh
    ngc_entrypoint: NgcEntrypointFlags
    download: InstallerDownload

    def flags_for(self, version: str) -> tuple[VersionedValue, ...]:
        """Return the flags of efa_installer.sh of this version, for use in an image."""
        return tuple(flag for flag in self.flags if flag.holds(version))


class PluginRelease(Fact):
    """One release. What is not stated is not known."""

    min_nccl: Version | None = None
    min_libfabric: Version | None = None  # of a build for AWS
    tested_nccl: tuple[Version, ...] = ()
    net: int | None = None  # the newest net ABI version known to be exported; older ones are too
    sha512: str | None = None  # of the release tarball, the one that has `configure`


class PluginPlatform(VersionedFact):
    """A feature of a plugin for EFA, and its headings in configure's summary."""

    name: str
    headings: tuple[str, ...]


class CudaFixes(Fact):
    """The first plugin whose notes name fixes for a CUDA major: of older ones it is not known."""

    major: int
    plugin: Version


class TarballUrl(VersionedFact):
    """The address of release tarballs with `configure`; {version} is replaced."""

    url: VersionUrl


class Plugin(FactsFile):
    """facts/aws-ofi-nccl.yaml."""

    FILE = f"{AWS_OFI_NCCL}.yaml"

    min_libfabric: tuple[VersionedValue, ...]  # the oldest libfabric with which it takes the provider efa
    releases: dict[Version, PluginRelease]
    net_names: tuple[VersionedValue, ...]  # to which the plugin answers: what NCCL_NET may say
    files: tuple[VersionedValue, ...]  # that it installs, relative to its prefix
    configure: tuple[VersionedValue, ...]  # its switches
    platform: PluginPlatform
    tarballs: tuple[TarballUrl, ...]
    cuda_fixes: tuple[CudaFixes, ...]

    def network_names(self, version: str | None) -> list[str]:
        """Return the values of NCCL_NET that select the plugin of a version; None: of any version.

        The name under which it registers comes first.
        """
        return [row.value for row in self.net_names if version is None or row.holds(version)]


class AptRepository(Fact):
    """The apt repository."""

    url: str
    key: str
    packages: tuple[str, ...]


class AptSuite(Fact):
    """A suite of the repository, for the bases of one codename."""

    platforms: tuple[Platform, ...]


class NcclOnErdma(Fact):
    """The oldest NCCL that Alibaba supports, and the releases that were seen to work."""

    minimum: Version
    working: tuple[Version, ...]


class Erdma(FactsFile):
    """facts/erdma.yaml."""

    FILE = "erdma.yaml"

    repository: AptRepository
    suites: dict[str, AptSuite]
    nccl: NcclOnErdma
