"""Alibaba's verbs libraries, with the erdma provider, from its apt repository."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rdma_images.components import base
from rdma_images.components.definition import BundledVersion, ComponentDefinition, apt_source
from rdma_images.core.image import Details, Image
from rdma_images.core.source import UNPINNED, Source
from rdma_images.facts import Facts

NAME = "erdma-apt"
KEY = "erdma-apt-key"
KEYRING = "/etc/apt/keyrings/erdma.asc"
KEY_MOUNT = "/mnt/erdma-apt"  # where a RUN finds the context with the key, and a stand-in's repository beside it


@dataclass(frozen=True)
class ErdmaDetails(Details):
    """The packages that are installed from the repository."""

    packages: tuple[str, ...]


def _sources(image: Image, facts: Facts) -> Iterator[Source]:
    """Yield Alibaba's apt repository, and the key that its packages are signed with."""
    repository, codename = facts.erdma.repository, image.version(NAME)
    archive = apt_source(NAME, NAME, repository.url, [f"{codename}/erdma"], "main", KEYRING)
    # Another key signs another repository: neither is stood in for alone, and both are in one context.
    yield replace(archive, pair=NAME, over=base.NAME, stand_in=f"file:{KEY_MOUNT}")
    yield Source(id=KEY, component=KEY, kind="download", upstream=repository.key, pin=UNPINNED, context=NAME, pair=NAME)


ERDMA_APT = ComponentDefinition(
    name=NAME,
    position=90,
    bundled=BundledVersion(
        base.NAME,
        lambda chosen, fabric, facts: facts.bases.bases[chosen[base.NAME]].codename if fabric == "erdma" else None,
    ),
    details=lambda _, facts: ErdmaDetails(packages=facts.erdma.repository.packages),
    sources=_sources,
    source_names=(NAME, KEY),
)
