"""aws-ofi-nccl, NCCL's plugin for libfabric: the installer's, or built from its release tarball."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from rdma_images.components import efa_installer, nccl
from rdma_images.components.definition import Axis, Combination, Definition, Option, ordered
from rdma_images.components.source import download
from rdma_images.core import versions
from rdma_images.core.pipeline import UNPINNED, UNWRITTEN, Details, Fabric, Image, Source
from rdma_images.facts import Facts
from rdma_images.facts.aws_ofi_nccl import NAME

# The oldest net ABI that any release since 1.7 exports, and every NCCL since 2.18 takes.
# Source: aws-ofi-nccl src/nccl_ofi_interface_nvidia.cpp @02a874dc.
OLDEST_NET = 6


@dataclass(frozen=True)
class PluginDetails(Details):
    """Where the plugin is from, and how it is built where that is its source."""

    from_: Literal["installer", "source"]
    net_name: str  # what NCCL_NET says
    files: tuple[str, ...]  # that it installs, relative to its prefix
    configure: tuple[Option, ...]
    platform: str = field(metadata=UNWRITTEN)  # that it is built for, as its configure names it
    platform_headings: tuple[str, ...] = field(metadata=UNWRITTEN)  # before the platforms in what configure prints

    @property
    def network(self) -> str:
        """The plugin's."""
        return self.net_name


def is_from_source(combination: Combination, facts: Facts) -> bool:
    """Whether the plugin is built, because the installer brings none or another one on this base."""
    return not efa_installer.brings_plugin(combination, facts)


def _details(combination: Combination, facts: Facts) -> PluginDetails:
    version, known = combination[NAME], facts.plugin
    return PluginDetails(
        from_="source" if is_from_source(combination, facts) else "installer",
        net_name=known.net_name(version),
        files=tuple(file.path for file in known.files if file.holds(version)),
        configure=tuple(Option(one.switch, one.why) for one in known.configure if one.holds(version)),
        platform=known.platform.name,
        platform_headings=known.platform.says,
    )


def _was_tested(version: str, _: Fabric, facts: Facts) -> bool:
    """The installer's own was tested by AWS, whichever it is."""
    return version not in facts.plugin.releases or bool(facts.plugin.releases[version].tested_nccl)


def _sources(image: Image, facts: Facts) -> Iterator[Source]:
    """The release tarball, the one that has `configure`."""
    if image.details(PluginDetails).from_ == "source":
        version = image.version(NAME)
        url = next(tarball.url for tarball in facts.plugin.tarballs if tarball.holds(version))
        release = facts.plugin.releases.get(version)
        pin = f"sha512:{release.sha512}" if release and release.sha512 else UNPINNED
        yield download(NAME, version, url.format(version=version), pin)


def _stand_in_arguments(image: Image, facts: Facts) -> dict[str, str]:
    """The ABI versions that the plugin of the stand-in exports."""
    net = range(OLDEST_NET, _newest_net(image.version(NAME), facts) + 1)
    tuner = facts.nccl.releases[image.version(nccl.NAME)].tuner
    return {"NET_ABI": " ".join(map(str, net)), "TUNER_ABI": " ".join(map(str, tuner))}


def _newest_net(plugin: str, facts: Facts) -> int:
    """The newest net ABI that this plugin is known to export, or that the newest older one is known to."""
    known = [
        release.net
        for version, release in facts.plugin.releases.items()
        if release.net and not (versions.at_least(version, plugin) and version != plugin)
    ]
    return max(known, default=OLDEST_NET)


AWS_OFI_NCCL = Definition(
    name=NAME,
    axis=Axis(
        NAME,
        lambda facts: ordered(facts.plugin.releases),
        decided_by=efa_installer.NAME,
        implied=lambda facts, chosen: facts.efa.releases[chosen[efa_installer.NAME]].plugin,
    ),
    tag="ofi",
    is_bumped=True,
    details=_details,
    is_compiled=is_from_source,
    was_tested=_was_tested,
    sources=_sources,
    source_names=(NAME,),
    has_configure=True,
    stand_in_arguments=_stand_in_arguments,
)
