"""AWS's EFA installer, with libfabric and rdma-core, and on some bases the plugin."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rdma_images.components import base, cuda, pytorch
from rdma_images.components.definition import (
    Axis,
    BundledVersion,
    Combination,
    ComponentDefinition,
    download_source,
    sorted_versions,
)
from rdma_images.core.image import Details, Image
from rdma_images.core.source import Source
from rdma_images.facts import Facts
from rdma_images.facts.fabric_software import AWS_OFI_NCCL as PLUGIN
from rdma_images.facts.fabric_software import EFA_INSTALLER as NAME
from rdma_images.facts.fabric_software import VersionedValue

PLUGIN_PACKAGE = "libnccl-ofi"
OPEN_MPI = "/opt/amazon/openmpi"  # the folder of the Open MPI that it brings


@dataclass(frozen=True)
class InstallerDetails(Details):
    """How efa_installer.sh is called, what is removed again, and what it has to find."""

    flags: tuple[VersionedValue, ...]
    removed_package: str  # its package that is removed again; empty where none is
    cuda_runtime: str  # the file that libfabric opens as libcudart.so, below site-packages; empty without CUDA

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the options that the installer was called with."""
        return {"flags": " ".join(map(str, self.flags))}


def brings_plugin(combination: Combination, facts: Facts) -> bool:
    """Return whether the installer brings exactly the planned plugin on this base."""
    installer = combination[NAME]
    system = facts.bases.bases[combination[base.NAME]].system
    return facts.efa_installer.releases[installer].plugin == combination[PLUGIN] and any(
        row.distribution == system and row.platform == combination["platform"] and row.holds(installer)
        for row in facts.efa_installer.bundled_plugins
    )


def _python_packages(combination: Combination, facts: Facts) -> tuple[str, ...]:
    """Return CUDA's runtime for images without torch: libfabric needs it for GPU memory."""
    if NAME not in combination or cuda.NAME not in combination or pytorch.NAME in combination:
        return ()
    return (cuda.runtime_requirement(combination[cuda.NAME], facts),)


def _details(combination: Combination, facts: Facts) -> InstallerDetails:
    version = combination[NAME]
    replaced = PLUGIN in combination and not brings_plugin(combination, facts)
    return InstallerDetails(
        flags=facts.efa_installer.flags_for(version),
        program_folders=("/opt/amazon/efa/bin", f"{OPEN_MPI}/bin"),
        removed_package=PLUGIN_PACKAGE if replaced else "",
        cuda_runtime=cuda.runtime_library(combination[cuda.NAME], facts) if cuda.NAME in combination else "",
    )


def _sources(image: Image, facts: Facts) -> Iterator[Source]:
    """Yield the installer's tarball, pinned by a checksum, else by the vendor's signature."""
    version, download = image.version(NAME), facts.efa_installer.download
    url, checksum = download.url.format(version=version), facts.efa_installer.releases[version].sha256
    if checksum:
        yield download_source(NAME, version, url, f"sha256:{checksum}")
    else:
        signature, key = (address.format(version=version) for address in (download.signature, download.key))
        signed = download_source(NAME, version, url, f"openpgp:{download.fingerprint}")
        yield replace(signed, signature=signature, key=key)


EFA_INSTALLER = ComponentDefinition(
    name=NAME,
    position=60,
    axis=Axis(NAME, lambda facts: sorted_versions(facts.efa_installer.releases)),
    tag="efa",
    details=_details,
    python_packages=_python_packages,
    required_for=("efa",),
    # The facts know the libfabric of every installer seen to work.
    was_tested=lambda version, _, facts: facts.efa_installer.releases[version].libfabric is not None,
    sources=_sources,
    source_names=(NAME,),
)
LIBFABRIC = ComponentDefinition(
    name="libfabric",
    position=61,
    bundled=BundledVersion(NAME, lambda chosen, _, facts: facts.efa_installer.releases[chosen[NAME]].libfabric),
)
RDMA_CORE = ComponentDefinition(
    name="rdma-core",
    position=62,
    bundled=BundledVersion(NAME, lambda chosen, _, facts: facts.efa_installer.releases[chosen[NAME]].rdma_core),
    in_tables=False,
)
