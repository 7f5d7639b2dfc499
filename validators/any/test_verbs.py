"""The verbs library and its providers, whatever the network."""

import pytest

from rdma_images.chain.verbs import PROVIDER, VERBS, opened_providers, provider_suffixes, search_words
from rdma_images.core.check import Severity
from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.applies import for_no_fabric, in_tree
from validators.support.in_use import (
    LIBEFA,
    LIBFABRIC,
    NO_LIBRARY,
    closure,
    configured_drivers,
    has_broken_file,
    loads_nccl,
)
from validators.support.wording import shorten_names

OPEN_SOURCE = "NVIDIA/nccl src/misc/ibvsymbols.cc: dlopen of libibverbs.so.1, and sockets without it"
PROVIDER_SOURCE = "rdma-core: libibverbs opens lib<driver>-rdmav<ABI>.so, named in /etc/libibverbs.d"


def may_use_verbs(files: Files, libraries: Libraries) -> bool:
    """Return whether an image has NCCL or libibverbs."""
    return bool(libraries.resolved[VERBS].file) or loads_nccl(files, libraries)


@pytest.mark.validator("verbs.usable", source=OPEN_SOURCE, severity="warning", when=for_no_fabric(may_use_verbs))
def test_usable(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """NCCL's own network for RDMA finds libibverbs with a provider, in an image that is for neither fabric."""
    file = libraries.resolved[VERBS].file
    if has_broken_file(inspection, libraries, VERBS):
        pytest.skip(NO_LIBRARY)
    announcement_folders = {word for word in search_words(libraries) if word.endswith("/libibverbs.d")} or {
        "/etc/libibverbs.d"
    }
    providers = opened_providers(files, libraries)
    driver = any(base_name(path).endswith(".driver") for path in files.libraries) or bool(
        configured_drivers(inspection)
    )
    problem = f"{base_name(file)} opens no provider, and NCCL takes TCP: "
    problem += (
        f"no file in {' or '.join(sorted(announcement_folders))}"
        if not driver
        else f"no lib*{next(iter(sorted(provider_suffixes(libraries))), '-rdmav*.so')} where it looks"
    )
    fabric = libraries.resolved[LIBFABRIC].file
    has_efa = LIBEFA in closure(libraries, fabric).libraries or LIBEFA in closure(libraries, fabric).missing
    problem += f", and {base_name(fabric)} is built without EFA" if fabric and not has_efa else ""
    require(
        bool(file and providers and driver),
        expected="libibverbs.so.1 with a provider: without it NCCL takes TCP on every RDMA network but EFA",
        actual=(", ".join(providers) if providers and driver else problem)
        if file
        else "NCCL finds no libibverbs.so.1: it takes TCP on InfiniBand, RoCE and eRDMA",
        fix="install libibverbs1 and ibverbs-providers (rpm: libibverbs and rdma-core), or the fabric's own packages",
        severity=None if file else "note",  # the answer says it
    )


def has_providers(files: Files, libraries: Libraries) -> bool:
    """Return whether an image has a libibverbs and providers for one."""
    return bool(provider_suffixes(libraries)) and any(PROVIDER.fullmatch(base_name(path)) for path in files.libraries)


@pytest.mark.validator("verbs.suffix", source=PROVIDER_SOURCE, severity="warning", when=in_tree(has_providers))
def test_suffix(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """The verbs providers are of the ABI that libibverbs opens."""
    in_use = libraries.resolved[VERBS].file
    endings = " or ".join(sorted(provider_suffixes(libraries)))
    providers = [p for p in files.libraries if PROVIDER.fullmatch(base_name(p))]
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
