"""aws-ofi-nccl, NCCL's plugin for libfabric: the installer's, or built from source."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from rdma_images.components import efa_installer, nccl
from rdma_images.components.definition import Axis, Combination, ComponentDefinition, download_source, sorted_versions
from rdma_images.core import versions
from rdma_images.core.image import TEMPLATE_ONLY, Details, Fabric, Image
from rdma_images.core.source import UNPINNED, Source
from rdma_images.facts import Facts
from rdma_images.facts.fabric_software import AWS_OFI_NCCL as NAME
from rdma_images.facts.fabric_software import EFA_INSTALLER as INSTALLER
from rdma_images.facts.fabric_software import VersionedValue

# The oldest net ABI that any release since 1.7 exports, and every NCCL since 2.18 takes.
# Source: aws-ofi-nccl src/nccl_ofi_interface_nvidia.cpp @02a874dc.
OLDEST_NET = 6


@dataclass(frozen=True)
class PluginDetails(Details):
    """The plugin's origin, and how it is built where that is its source."""

    origin: Literal["installer", "source"]
    net_name: str  # what NCCL_NET says
    files: tuple[str, ...]  # that it installs, relative to its prefix
    configure: tuple[VersionedValue, ...]
    platform: str = field(metadata=TEMPLATE_ONLY)  # that it is built for, as its configure names it
    platform_headings: tuple[str, ...] = field(metadata=TEMPLATE_ONLY)  # before the platforms in what configure prints
    other_net_names: tuple[str, ...] = field(default=(), metadata=TEMPLATE_ONLY)  # that NCCL_NET may say as well

    @property
    def networks(self) -> tuple[str, ...]:
        """Return the names to which the plugin answers."""
        return (self.net_name, *self.other_net_names)


def is_from_source(combination: Combination, facts: Facts) -> bool:
    """Return whether the plugin is compiled, because the installer brings none or another."""
    return not efa_installer.brings_plugin(combination, facts)


def _details(combination: Combination, facts: Facts) -> PluginDetails:
    version, plugin_facts = combination[NAME], facts.aws_ofi_nccl
    return PluginDetails(
        origin="source" if is_from_source(combination, facts) else "installer",
        net_name=plugin_facts.network_names(version)[0],
        files=tuple(file.value for file in plugin_facts.files if file.holds(version)),
        configure=tuple(option for option in plugin_facts.configure if option.holds(version)),
        platform=plugin_facts.platform.name,
        platform_headings=plugin_facts.platform.headings,
        other_net_names=tuple(plugin_facts.network_names(version)[1:]),
    )


def _was_tested(version: str, _: Fabric, facts: Facts) -> bool:
    """Return whether a version was tested, by the facts or as AWS's own combination."""
    return version not in facts.aws_ofi_nccl.releases or bool(facts.aws_ofi_nccl.releases[version].tested_nccl)


def _sources(image: Image, facts: Facts) -> Iterator[Source]:
    """Yield the release tarball, the one that has `configure`."""
    if image.details(PluginDetails).origin == "source":
        version = image.version(NAME)
        url = next(tarball.url for tarball in facts.aws_ofi_nccl.tarballs if tarball.holds(version))
        release = facts.aws_ofi_nccl.releases.get(version)
        pin = f"sha512:{release.sha512}" if release and release.sha512 else UNPINNED
        yield download_source(NAME, version, url.format(version=version), pin)


def _stand_in_arguments(image: Image, facts: Facts) -> dict[str, str]:
    """Return the ABI versions that the plugin of the stand-in exports."""
    net = range(OLDEST_NET, _newest_net(image.version(NAME), facts) + 1)
    tuner = facts.nccl.releases[image.version(nccl.NAME)].tuner
    return {"NET_ABI": " ".join(map(str, net)), "TUNER_ABI": " ".join(map(str, tuner))}


def _newest_net(plugin: str, facts: Facts) -> int:
    """Return the newest net ABI that this plugin, or the newest known older one, exports."""
    tested = [
        release.net
        for version, release in facts.aws_ofi_nccl.releases.items()
        if release.net and not (versions.at_least(version, plugin) and version != plugin)
    ]
    return max(tested, default=OLDEST_NET)


AWS_OFI_NCCL = ComponentDefinition(
    name=NAME,
    position=70,
    axis=Axis(
        NAME,
        lambda facts: sorted_versions(facts.aws_ofi_nccl.releases),
        decided_by=INSTALLER,
        version_from=lambda facts, values: facts.efa_installer.releases[values[INSTALLER]].plugin,
    ),
    tag="ofi",
    details=_details,
    needs=(INSTALLER,),
    is_compiled=is_from_source,
    was_tested=_was_tested,
    sources=_sources,
    source_names=(NAME,),
    stand_in_arguments=_stand_in_arguments,
)
