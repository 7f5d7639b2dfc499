"""Validators of the chain from NCCL to the fabric, as it was run, or read where nothing could be run."""

from rdma_images.chain import compute_chain
from rdma_images.chain.links import EFA_PLUGINS
from rdma_images.chain.verbs import VERBS
from rdma_images.core.errors import RdmaImagesError
from rdma_images.inspection.inspection import Inspection, missing_in, nccl_in_use
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.inspection.network_chain import Link
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.in_use import (
    LIBEFA,
    LIBFABRIC,
    NO_LIBRARY,
    closure,
    directly_opened,
    has_broken_file,
    plugin_path,
    provider_files,
    tried_plugin_names,
)
from validators.support.variables import harmful_variables

PLUGIN_HOST_SOURCE = "NCCL's part, played in the image: probes/plugin_host.py names the sources of NCCL that it follows"
# A link whose faults have checks of their own.
CHECKS_BY_LINK = {
    "NCCL": "nccl.found or erdma.nccl",
    "settings": "environment.harmful or settings.harmful",
    "network": "environment.harmful or settings.harmful",
    "verbs provider": "verbs.provider, verbs.suffix or verbs.closure",
}
FIXES_BY_LINK = {
    "NCCL": "install an NCCL without this fault",
    "settings": "leave out what the image sets of them",
    "network": "leave out NCCL_NET and FI_PROVIDER, or take an image that is for this fabric",
    "fabric": "install the fabric's libraries, or ask for another fabric",
    "plugin": "install the aws-ofi-nccl that belongs to this NCCL and libfabric, with all it needs; run ldconfig",
    "libibverbs": "install libibverbs1 and the fabric's provider",
    "verbs provider": "install the fabric's provider for this libibverbs: ibverbs-providers has it",
}
LIBFABRIC_FIX = "install libfabric with the EFA installer, and leave FI_PROVIDER_PATH unset"


@validator("chain.holds", source=PLUGIN_HOST_SOURCE)
def test_holds(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """Every link from NCCL to the fabric holds."""
    image_fabric, requested = inspection.expected.fabric, inspection.expected.requested_fabric
    fabric = requested or image_fabric
    chain = compute_chain(inspection, fabric, inspection.expected.instance) if fabric else None
    if chain is None:
        raise RdmaImagesError("a chain was asked for a fabric, and there is none")
    broken = next((link for link in chain.links if link.fault), None)
    reports = harmful_variables(inspection) if broken else {}
    if broken and (check := next((reports[text] for text in reports if broken.fault.startswith(f"{text} ")), "")):
        skip(f"{broken.fault}: see {check}")
    if broken and fabric == image_fabric:
        _skip_if_checked(inspection, files, libraries, broken)
    elif chain.outcome == "unknown":
        skip(chain.answer)
    require(
        broken is None,
        expected=f"NCCL {'starts without a' if fabric == 'none' else 'reaches the'} fabric",
        actual=broken.fault if broken else chain.answer,
        fix=FIXES_BY_LINK.get(broken.name, LIBFABRIC_FIX) if broken else "",
    )


def _skip_if_checked(inspection: Inspection, files: Files, libraries: Libraries, link: Link) -> None:
    """Skip where another check reports the cause.

    Those are about the fabric that the image is for.
    """
    if link.name in CHECKS_BY_LINK:
        skip(f"see {CHECKS_BY_LINK[link.name]}")
    if link.name == "libibverbs" and not provider_files(files, str(inspection.expected.fabric)):
        skip("the fabric's provider is not there: see verbs.provider")
    nccl = nccl_in_use(inspection)
    names = tried_plugin_names(inspection, libraries, nccl.path) if nccl else []
    if has_broken_file(inspection, libraries, *names, LIBFABRIC, LIBEFA, VERBS):
        skip(NO_LIBRARY)
    file = plugin_path(inspection, libraries, nccl.path) if nccl else None
    if link.name == "plugin" and not file:
        skip("NCCL finds no network plugin: see plugin.found")
    plugin = libraries.plugins.get(file or "")
    stranger = plugin and plugin.project not in EFA_PLUGINS and (plugin.project or LIBFABRIC not in plugin.needed)
    if link.name == "plugin" and stranger:
        skip("NCCL opens another plugin than the fabric's: see plugin.project")
    if any(closure(libraries, path).faults for path in directly_opened(inspection, files, libraries)):
        skip("the loader refuses a library: see libraries.load")
    if missing_in(libraries, libraries.resolved[LIBFABRIC].file):
        skip("libfabric needs what is not there: see libfabric.closure")
