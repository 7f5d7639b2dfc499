"""All sources of an image that come over a network, by their own addresses."""

from collections.abc import Iterator
from dataclasses import replace

from rdma_images import components
from rdma_images.components.base import BaseDetails
from rdma_images.components.definition import apt_source
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.core.source import ARCHIVE_SIGNATURE, UNPINNED, Source
from rdma_images.engine.debian import host_apt
from rdma_images.engine.docker_command import local_name
from rdma_images.facts import Facts
from rdma_images.facts.bases import Base
from rdma_images.inputs import package_index, pins
from rdma_images.inputs.mirrors import Mirrors, split_login
from rdma_images.registry.reference import with_registry

# The base of the stages that build and are not in the image: the wheels' layers must be the same bytes for every image.
BUILDER = "debian13"
BUILD_PLATFORM = "build"  # whatever the machine that builds is

# Names by which mirrors.yaml may call a source, beside a kind, an id, or a component with a version.
COMPONENTS = (
    "debian",
    "debian-security",
    "ubuntu",
    "package-index",
    *(name for component in components.ALL for name in component.source_names),
)

# What a CUDA base's stand-in has beyond the base that it is: a folder of dockerfiles/stand-ins/.
CUDA_BASE = "cuda-base"

UBUNTU_KEYRING = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"


def sources(image: Image, facts: Facts) -> tuple[Source, ...]:
    """Return all sources of an image: bases, apt archives, package index and downloads.

    Debian's archive and the package index are the ones this machine is configured with.
    """
    return (*pinned(image, facts), index_source())


def pinned(image: Image, facts: Facts) -> tuple[Source, ...]:
    """Return the sources with pins of their own: all but the package index."""
    bases = facts.bases.bases
    pinned_sources = [
        source_of_base(image, facts),
        _base("builder", BUILDER, bases[BUILDER], BUILD_PLATFORM, BUILDER),
        *_archives("base", bases[_effective_base(image)]),
        *_archives("builder", bases[BUILDER]),
    ]
    pinned_sources += _component_sources(image, facts)
    return tuple(pinned_sources)


def source_of_base(image: Image, facts: Facts) -> Source:
    """Return the base of an image."""
    if image.onto:
        ref, digest = image.onto.base.ref, image.onto.base.digest
        source = Source(f"base-{digest}", "base", "base", ref, digest, context="base", digest=digest)
        return replace(source, platform=image.platform, local_name=local_name(ref))
    name = image.axes["base"]
    return _base("base", name, facts.bases.bases[name], image.platform, _effective_base(image))


def _effective_base(image: Image) -> str:
    """Return the base on which the image stands: its own, or its stand-in."""
    return image.details(BaseDetails).stand_in or image.axes["base"]


def _base(role: str, name: str, base: Base, platform: str, effective_base: str) -> Source:
    """Return the source of a base: bootstrapped if possible, else pulled by its digest.

    `effective_base` is the base that the image really stands on.
    """
    upstream = with_registry(base.image)
    digest = pins.bases().get(upstream, UNPINNED)
    bootstrap = effective_base if base.kind == "bootstrap" or effective_base != name else ""
    return Source(
        id=f"base-{name}",
        component="base",
        kind="base",
        upstream=upstream,
        pin=ARCHIVE_SIGNATURE if bootstrap else digest,
        context=role,
        digest=digest,
        platform=platform,
        bootstrap=bootstrap,
        stand_in=(effective_base if effective_base != name else base.stand_in) if base.stand_in else "",
        laid_over=CUDA_BASE if base.stand_in and base.cuda else "",
    )


def _archives(role: str, base: Base) -> Iterator[Source]:
    """Yield the apt archives of a base; without address where only the base names it."""
    if base.distribution == "debian":
        main, security = _debian()
        yield apt_source("debian", role, main, [base.codename, f"{base.codename}-updates"], "main", host_apt.KEYRING)
        if security or not main:
            yield apt_source("debian-security", role, security, [f"{base.codename}-security"], "main", host_apt.KEYRING)
    else:
        suites = [base.codename, f"{base.codename}-updates", f"{base.codename}-security"]
        yield apt_source("ubuntu", role, "", suites, "main restricted universe multiverse", UBUNTU_KEYRING)


def _debian() -> tuple[str, str]:
    """Return the host's Debian archive and security archive; empty on other systems."""
    try:
        host = host_apt.host_archives()
    except RdmaImagesError:
        return "", ""
    security = split_login(host.security.uri)[0] if host.security else ""
    return split_login(host.main.uri)[0], security


def index_source() -> Source:
    """Return the source of all wheels: the package index."""
    # Each wheel has its own hash in the image's lock.
    return Source(
        id="package-index",
        component="package-index",
        kind="index",
        upstream=split_login(package_index.index_address())[0],
        pin="sha256 of each wheel",
    )


def index_for(mirrors: Mirrors) -> tuple[str, Mirrors]:
    """Return this run's package index, and mirrors with this machine's login for it."""
    if address := mirrors.address(index_source()):
        return address, mirrors
    address, login = split_login(package_index.index_address())
    return address, mirrors.with_login_for(address, login) if login else mirrors


def _component_sources(image: Image, facts: Facts) -> Iterator[Source]:
    """Yield the sources of the components, with pins of the facts or the lock."""
    for component in components.ALL:
        if component.name in image.components:
            for source in component.sources(image, facts):
                locked = source.pin == UNPINNED
                yield replace(source, pin=pins.downloads().get(source.id, UNPINNED)) if locked else source
