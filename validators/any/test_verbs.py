"""The verbs library and its providers, whatever the network."""

from rdma_images.chain.verbs import PROVIDER, VERBS, opened_providers, provider_suffixes
from rdma_images.core.check import Severity
from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.validator import Requirement, validator
from validators.support.applies import in_tree
from validators.support.wording import shorten_names

PROVIDER_SOURCE = "rdma-core: libibverbs opens lib<driver>-rdmav<ABI>.so, named in /etc/libibverbs.d"


def has_providers(files: Files, libraries: Libraries) -> bool:
    """Return whether an image has a libibverbs and providers for one."""
    is_provider = (PROVIDER.fullmatch(base_name(path)) for path in files.library_files)
    return bool(provider_suffixes(libraries)) and any(is_provider)


@validator("verbs.suffix", source=PROVIDER_SOURCE, severity="warning", when=in_tree(has_providers))
def test_suffix(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """The verbs providers are of the ABI that libibverbs opens."""
    in_use = libraries.resolved[VERBS].file
    endings = " or ".join(sorted(provider_suffixes(libraries)))
    providers = [p for p in files.library_files if PROVIDER.fullmatch(base_name(p))]
    unopened = [path for path in providers if not path.endswith(tuple(provider_suffixes(libraries)))]
    opened = set(opened_providers(files, libraries).values())
    lost_drivers = {base_name(path).removeprefix("lib").partition("-rdmav")[0] for path in unopened} - opened
    otherwise: Severity = "warning" if lost_drivers else "note"
    require(
        not unopened,
        expected=f"every provider ends with {endings}",
        actual=f"{in_use or VERBS} opens lib*{endings} alone, and so no device with {shorten_names(unopened)}"
        if unopened
        else f"all {len(providers)} do",
        fix="install libibverbs and its providers from one source: a provider of another ABI is never opened",
        severity="error" if inspection.expected.fabric in lost_drivers else otherwise,
    )
