"""The verbs library and its providers."""

import re
from pathlib import PurePosixPath

import pytest

from rdma_images.chain.nccl_environment import started_environment
from rdma_images.chain.verbs import (
    PROVIDER,
    VERBS,
    lib_folder,
    opened_providers,
    provider_folders,
    provider_suffixes,
    search_words,
)
from rdma_images.core.check import Severity
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.pytest_plugin import Requirement
from validators.in_use import LIBEFA, LIBFABRIC, NO_LIBRARY, closure, has_broken_file, loads_nccl, provider_files
from validators.settings import component_versions, known_faults, shorten_names
from validators.toolruns import summary, tool_run

OPEN_SOURCE = "NVIDIA/nccl src/misc/ibvsymbols.cc: dlopen of libibverbs.so.1, and sockets without it"
LOADER_SOURCE = "ld.so(8): the order in which the dynamic loader searches"
DEVINFO_SOURCE = "ibv_devinfo(1); without a device it ends with 255"
PROVIDER_SOURCE = "rdma-core: libibverbs opens lib<driver>-rdmav<ABI>.so, named in /etc/libibverbs.d"
FAULT_SOURCE = "facts/faults.yaml, each with its source"
FOLDER_SOURCE = "rdma-core installs its libraries into the folder that has the one with its providers"
NO_DEVICE = re.compile(r"No IB devices found|Failed to get IB devices list", re.IGNORECASE)


@pytest.mark.validator("verbs.ibv-devinfo", source=DEVINFO_SOURCE, fabric="any")
def test_ibv_devinfo(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """ibv_devinfo is there and runs."""
    run = tool_run(inspection, libraries, "ibv_devinfo", "libfabric.closure")
    if isinstance(run, str):
        pytest.skip(run)
    require(
        run.rc == 0 or (run.rc == 255 and bool(NO_DEVICE.search(run.out + run.err))),
        expected="devices, or the message that there are none",
        actual=summary(run),
        fix="install ibverbs-utils from the same source as libibverbs (the EFA installer, or Alibaba's repository)",
        severity=None if run.path else "warning",
    )


def configured_drivers(inspection: Inspection) -> list[str]:
    """Return the drivers that libibverbs loads by the image's variables."""
    environment = started_environment(inspection)
    value = environment.get("RDMAV_DRIVERS", environment.get("IBV_DRIVERS", ""))
    return [base_name(word).removeprefix("lib") for word in re.split("[:;]", value) if word]


def rdma_core_folders(files: Files, libraries: Libraries, fabric: str) -> set[str]:
    """Return the folders of the rdma-core whose provider of the fabric libibverbs opens."""
    folders = {lib_folder(path) for path in provider_files(files, fabric)} & provider_folders(libraries)
    return {str(PurePosixPath(folder).parent) if base_name(folder) == "libibverbs" else folder for folder in folders}


@pytest.mark.validator("verbs.provider", source=PROVIDER_SOURCE, fabric="any")
def test_provider(
    inspection: Inspection, files: Files, libraries: Libraries, fabric: str, require: Requirement
) -> None:
    """The verbs provider of the image's fabric lies where libibverbs opens it, and a file or variable announces it."""
    opened, provider = provider_folders(libraries), provider_files(files, fabric)
    announcement_folders = {word for word in search_words(libraries) if word.endswith("/libibverbs.d")}
    driver = [p for p in files.libraries if base_name(p) == f"{fabric}.driver"]
    missing = [f"no lib{fabric}-rdmav<ABI>.so"] if not provider else []
    is_named = fabric in configured_drivers(inspection)
    missing += [f"no {fabric}.driver"] if not driver and not is_named else []
    is_opened = any(not opened or lib_folder(p) in opened for p in provider)
    is_announced = is_named or any(
        str(PurePosixPath(p).parent) in (announcement_folders or {"/etc/libibverbs.d"}) for p in driver
    )
    misplaced = [*(provider if not is_opened else ()), *(driver if not is_announced else ())]
    reason = f"it finds {' and '.join(missing)}" if missing else f"it does not look for {' and '.join(misplaced)}"
    require(
        is_opened and is_announced,
        expected=f"lib{fabric}-rdmav<ABI>.so in {' or '.join(sorted(opened)) or 'any folder'}, "
        f"and {fabric}.driver in {' or '.join(sorted(announcement_folders)) or '/etc/libibverbs.d'}",
        actual=", ".join(provider + driver)
        if is_opened and is_announced
        else f"libibverbs opens no provider of {FABRIC_TITLES[fabric]}, and so no device: {reason}",
        fix=f"install ibverbs-providers with {fabric} (the EFA installer's, or Alibaba's for eRDMA)",
    )


@pytest.mark.validator("verbs.loader", source=FOLDER_SOURCE, severity="warning", fabric="any")
def test_verbs_loader(
    inspection: Inspection, files: Files, libraries: Libraries, fabric: str, require: Requirement
) -> None:
    """Whoever asks for libibverbs, or for libefa, gets the one that the fabric's provider belongs to."""
    home = rdma_core_folders(files, libraries, fabric) or pytest.skip(
        "libibverbs opens no provider: see verbs.provider"
    )
    intended: dict[str, list[str]] = {}
    for name in ("libibverbs.so.1", *(["libefa.so.1"] if fabric == "efa" else [])):
        bundled = [p for p in inspection.libraries_named(name.removesuffix(".1")) if lib_folder(p) in home]
        intended |= {name: bundled} if bundled else {}
    if not intended:
        pytest.skip("the provider stands alone: there is no library beside it")
    loaded = {name: {libraries.resolved[name].file} for name in intended}
    for closure_ in libraries.closures.values():
        for name in intended.keys() & closure_.libraries.keys():
            loaded[name].add(closure_.libraries[name])
    foreign = sorted(p for name, candidates in loaded.items() for p in candidates if p and p not in intended[name])
    require(
        not foreign,
        expected=" and ".join(" or ".join(paths) for paths in intended.values()),
        actual=f"a process takes {', '.join(foreign)}, of another rdma-core than the provider of "
        f"{FABRIC_TITLES[fabric]}"
        if foreign
        else "the same, for all that need them",
        fix=f"remove {', '.join(foreign)}, or the ld.so.conf.d entry that puts it first, and run ldconfig",
    )


@pytest.mark.validator("verbs.usable", source=OPEN_SOURCE, severity="warning")
def test_usable(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """NCCL's own network for RDMA finds libibverbs with a provider, in an image that is for neither fabric."""
    if inspection.expected.fabric:
        pytest.skip("see verbs.provider and libfabric.closure")
    file = libraries.resolved[VERBS].file
    if not file and not loads_nccl(files, libraries):
        pytest.skip("the image has neither NCCL nor libibverbs")
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


@pytest.mark.validator("verbs.broken", source=FAULT_SOURCE, severity="warning", fabric="any")
def test_verbs_broken(inspection: Inspection, require: Requirement) -> None:
    """The rdma-core in use knows the fabric's devices, and is not known to fail on it."""
    in_image = component_versions(inspection)
    version = in_image.get("rdma-core") or pytest.skip("the names of libefa and libibverbs do not say their version")
    known_faults(inspection, in_image, "rdma-core").require_none(require, "an rdma-core", version)


@pytest.mark.validator("verbs.suffix", source=PROVIDER_SOURCE, severity="warning")
def test_suffix(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """The verbs providers are of the ABI that libibverbs opens."""
    in_use = libraries.resolved[VERBS].file
    endings = " or ".join(sorted(provider_suffixes(libraries)))
    providers = [p for p in files.libraries if PROVIDER.fullmatch(base_name(p))]
    if not endings or not providers:
        pytest.skip("the image has no libibverbs with providers")
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


@pytest.mark.validator("verbs.single", source=LOADER_SOURCE, severity="warning", fabric="any")
def test_verbs_single(
    inspection: Inspection, files: Files, libraries: Libraries, fabric: str, require: Requirement
) -> None:
    """One libibverbs is in the image."""
    paths = inspection.libraries_named("libibverbs.so") or pytest.skip("the image has no libibverbs")
    # One that the loader takes instead of the providers' own has a check of its own.
    home, used = rdma_core_folders(files, libraries, fabric), libraries.resolved["libibverbs.so.1"].file
    spare, no_provider = [path for path in paths if path != used and lib_folder(path) not in home], ""
    if spare and not home and provider_files(files, fabric):
        spare, no_provider = [used], ", which opens no provider of the fabric and no device"
    is_single = not spare or len(paths) == 1
    unused = [path for path in paths if path != used]
    require(
        is_single,
        expected="one file",
        actual=paths[0] if is_single else f"a process takes {used}{no_provider}, and not {shorten_names(unused)}",
        fix=f"remove {', '.join(spare)} or the package that brings it",
        severity=None if is_single or no_provider else "note",
    )
