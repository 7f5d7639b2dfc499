"""Everything that an image is made of and that comes over a network, by its own address, before any mirror."""

from collections.abc import Iterator
from dataclasses import replace

from rdma_images import package_index, pins
from rdma_images.engine import hostapt
from rdma_images.errors import RdmaImagesError
from rdma_images.facts import Facts
from rdma_images.facts.base import Base
from rdma_images.mirrors import Mirrors, split_login
from rdma_images.model import Image, Source

# The base of the stages that build and are not in the image: the wheels' layers must be the same bytes for every image.
BUILDER = "debian13"
BUILD_PLATFORM = "build"  # whatever the machine that builds is

# Names by which mirrors.yaml may call a source, beside a kind, an id, or a component with a version.
COMPONENTS = (
    "debian",
    "debian-security",
    "ubuntu",
    "package-index",
    "efa-installer",
    "aws-ofi-nccl",
    "erdma-apt",
    "erdma-apt-key",
    "nccl-tests",
)

# What a CUDA base's stand-in has beyond the base that it is: a folder of dockerfiles/stand-ins/.
CUDA_BASE = "cuda-base"

UNPINNED = "not locked"
ARCHIVE_SIGNATURE = "archive-signature"
UBUNTU_KEYRING = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
ERDMA_KEYRING = "/etc/apt/keyrings/erdma.asc"
ERDMA_MOUNTED = "/mnt/erdma-apt"  # where a RUN finds the context with the key, and a stand-in's repository beside it

# Source: the tags of github.com/NVIDIA/nccl-tests; it publishes no checksums, see pins.py.
NCCL_TESTS = "https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v{version}.tar.gz"


def sources(image: Image, facts: Facts) -> tuple[Source, ...]:
    """Every source of an image: its bases, apt archives, the package index and the downloads of its components.

    Debian's archive and the package index are the ones this machine is configured with.
    """
    return (*pinned(image, facts), _index())


def pinned(image: Image, facts: Facts) -> tuple[Source, ...]:
    """The sources that have a pin of their own: all but the package index, which its clients take long to tell."""
    bases = facts.bases.bases
    found = [
        base(image, facts),
        _base("builder", BUILDER, bases[BUILDER], BUILD_PLATFORM, BUILDER),
        *_archives("base", bases[_below(image)]),
        *_archives("builder", bases[BUILDER]),
    ]
    found += _downloads(image, facts)
    return tuple(found)


def base(image: Image, facts: Facts) -> Source:
    """The base of an image."""
    name = image.axes["base"]
    return _base("base", name, facts.bases.bases[name], image.platform, _below(image))


def _below(image: Image) -> str:
    """The base that the image really stands on: its own, or in a rehearsal that one's stand-in."""
    return image.components["base"].details.get("stand-in", image.axes["base"])


def _base(role: str, name: str, base: Base, platform: str, below: str) -> Source:
    """The base as a build context; bootstrapped where that can be done, else pulled by its locked digest.

    `below` is the base that the image really stands on.
    """
    upstream = pins.full(base.image)
    digest = pins.bases().get(upstream, UNPINNED)
    bootstrap = below if base.kind == "bootstrap" or below != name else ""
    return Source(
        id=f"base-{name}",
        component="base",
        kind="base",
        upstream=upstream,
        pin=ARCHIVE_SIGNATURE if bootstrap else digest,
        context=role,
        extra={"digest": digest, "platform": platform}
        | ({"bootstrap": bootstrap} if bootstrap else {})
        | ({"stand-in": base.stand_in} if base.stand_in else {})
        | ({"laid-over": CUDA_BASE} if base.stand_in and base.cuda else {}),
    )


def _archives(role: str, base: Base) -> Iterator[Source]:
    """The apt archives that a stage on this base installs from; without an address where only the base names it."""
    if base.distribution == "debian":
        main, security = _debian()
        yield _apt("debian", role, main, [base.codename, f"{base.codename}-updates"], "main", hostapt.KEYRING)
        if security or not main:
            yield _apt("debian-security", role, security, [f"{base.codename}-security"], "main", hostapt.KEYRING)
    else:
        suites = [base.codename, f"{base.codename}-updates", f"{base.codename}-security"]
        yield _apt("ubuntu", role, "", suites, "main restricted universe multiverse", UBUNTU_KEYRING)


def _debian() -> tuple[str, str]:
    """The addresses of Debian's archive and of its security archive here; empty where this host is not Debian."""
    try:
        host = hostapt.debian()
    except RdmaImagesError:
        return "", ""
    return host.main.uri, host.security.uri if host.security else ""


def _apt(name: str, role: str, upstream: str, suites: list[str], components: str, keyring: str) -> Source:
    return Source(
        id=f"{name}-{suites[0].removesuffix('-security')}",
        component=name,
        kind="apt",
        upstream=split_login(upstream)[0].rstrip("/"),
        pin=ARCHIVE_SIGNATURE,
        extra={"role": role, "suites": " ".join(suites), "components": components, "signed-by": keyring},
    )


def _index() -> Source:
    # Each wheel has its own hash in the image's lock.
    return Source(
        id="package-index",
        component="package-index",
        kind="index",
        upstream=split_login(package_index.address())[0],
        pin="sha256 of each wheel",
    )


def index_for(replaced: Mirrors) -> tuple[str, Mirrors]:
    """The package index that this run uses, and mirrors that know its login where this machine's own one has it."""
    if address := replaced.address(_index()):
        return address, replaced
    address, login = split_login(package_index.address())
    return address, replaced.knowing(address, login) if login else replaced


def _downloads(image: Image, facts: Facts) -> Iterator[Source]:
    """The files that this machine downloads, verifies and hands to the build."""
    if "efa-installer" in image.components:
        yield _efa_installer(image.version("efa-installer"), facts)
    plugin = image.components.get("aws-ofi-nccl")
    if plugin and plugin.details["from"] == "source":
        yield _plugin(plugin.version, facts)
    if "nccl-tests" in image.components:
        version = image.version("nccl-tests")
        yield _download("nccl-tests", version, NCCL_TESTS.format(version=version), _locked(f"nccl-tests-{version}"))
    if "erdma-apt" in image.components:
        yield from _erdma(facts.bases.bases[image.axes["base"]], facts)


def _efa_installer(version: str, facts: Facts) -> Source:
    """Pinned by the vendor's checksum where facts have it, else by the vendor's signature and the key's fingerprint."""
    where = facts.efa.download
    release = facts.efa.releases[version]
    url = where.url.format(version=version)
    if release.sha256:
        return _download("efa-installer", version, url, f"sha256:{release.sha256}")
    signed = {"signature": where.signature.format(version=version), "key": where.key.format(version=version)}
    return _download("efa-installer", version, url, f"openpgp:{where.fingerprint}", signed)


def _plugin(version: str, facts: Facts) -> Source:
    """The release tarball, the one that has `configure`."""
    url = next(tarball.url for tarball in facts.plugin.tarballs if tarball.holds(version))
    release = facts.plugin.releases.get(version)
    pin = f"sha512:{release.sha512}" if release and release.sha512 else _locked(f"aws-ofi-nccl-{version}")
    return _download("aws-ofi-nccl", version, url.format(version=version), pin)


def _erdma(base: Base, facts: Facts) -> Iterator[Source]:
    """Alibaba's apt repository, and the key that its packages are signed with."""
    repository = facts.erdma.repository
    archive = _apt("erdma-apt", "erdma-apt", repository.url, [f"{base.codename}/erdma"], "main", ERDMA_KEYRING)
    # Another key signs another repository: neither is stood in for alone, and both are in one context.
    pair = {"pair": "erdma-apt"}
    yield replace(archive, extra={**archive.extra, **pair, "over": "base", "stand-in": f"file:{ERDMA_MOUNTED}"})
    yield Source(
        id="erdma-apt-key",
        component="erdma-apt-key",
        kind="download",
        upstream=repository.key,
        pin=_locked("erdma-apt-key"),
        context="erdma-apt",
        extra=pair,
    )


def _download(name: str, version: str, upstream: str, pin: str, extra: dict[str, str] | None = None) -> Source:
    return Source(
        id=f"{name}-{version}",
        component=name,
        kind="download",
        upstream=upstream,
        pin=pin,
        context=name,
        extra=extra or {},
    )


def _locked(source: str) -> str:
    return pins.downloads().get(source, UNPINNED)
