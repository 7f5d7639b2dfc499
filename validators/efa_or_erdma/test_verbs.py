"""The verbs library of an image for a fabric, with the fabric's provider."""

import re
from pathlib import PurePosixPath

from rdma_images.chain.verbs import lib_folder, opened_providers, provider_folders, search_words
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.inspection.inspection import Inspection, base_name, describe_missing_libraries
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.in_use import closure, configured_drivers, provider_files
from validators.support.tool_runs import summary, tool_run

DRIVER_SOURCE = "rdma-core libibverbs/dynamic_driver.c: dlopen with RTLD_NOW, and a warning of what does not load"
NO_DEVICE = re.compile(r"No IB devices found|Failed to get IB devices list", re.IGNORECASE)
DEVINFO_SOURCE = "ibv_devinfo(1); without a device it ends with 255"
PROVIDER_SOURCE = "rdma-core: libibverbs opens lib<driver>-rdmav<ABI>.so, named in /etc/libibverbs.d"
FOLDER_SOURCE = "rdma-core installs its libraries into the folder that has the one with its providers"


@validator("verbs.closure", source=DRIVER_SOURCE)
def test_providers(
    inspection: Inspection, files: Files, libraries: Libraries, fabric: str, require: Requirement
) -> None:
    """Every library that the fabric's verbs provider needs is found."""
    provider_paths = [path for path, driver in opened_providers(files, libraries).items() if driver == fabric]
    if not provider_paths:
        skip("libibverbs opens no provider of the fabric: see verbs.provider")
    missing = {path: lacks for path in provider_paths if (lacks := closure(libraries, path).missing)}
    require(
        not missing,
        expected="nothing missing",
        actual="; ".join(
            f"{path} is not loaded: it finds no {describe_missing_libraries(inspection, lacks)}"
            for path, lacks in missing.items()
        )
        or f"complete for {', '.join(provider_paths)}",
        fix=f"install what brings {', '.join(name for lacks in missing.values() for name in lacks)}, "
        "or ibverbs-providers again",
    )


@validator("verbs.ibv-devinfo", source=DEVINFO_SOURCE)
def test_ibv_devinfo(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """ibv_devinfo is there and runs."""
    run = tool_run(inspection, libraries, "ibv_devinfo", "libfabric.closure")
    if isinstance(run, str):
        skip(run)
    require(
        run.exit_code == 0 or (run.exit_code == 255 and bool(NO_DEVICE.search(run.stdout + run.stderr))),
        expected="devices, or the message that there are none",
        actual=summary(run),
        fix="install ibverbs-utils from the same source as libibverbs (the EFA installer, or Alibaba's repository)",
        severity=None if run.path else "warning",
    )


def rdma_core_folders(files: Files, libraries: Libraries, fabric: str) -> set[str]:
    """Return the folders of the rdma-core whose provider of the fabric libibverbs opens."""
    folders = {lib_folder(path) for path in provider_files(files, fabric)} & provider_folders(libraries)
    return {str(PurePosixPath(folder).parent) if base_name(folder) == "libibverbs" else folder for folder in folders}


@validator("verbs.provider", source=PROVIDER_SOURCE)
def test_provider(
    inspection: Inspection, files: Files, libraries: Libraries, fabric: str, require: Requirement
) -> None:
    """The verbs provider of the image's fabric lies where libibverbs opens it, and a file or variable announces it."""
    opened, provider = provider_folders(libraries), provider_files(files, fabric)
    announcement_folders = {word for word in search_words(libraries) if word.endswith("/libibverbs.d")}
    driver = [p for p in files.library_files if base_name(p) == f"{fabric}.driver"]
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


@validator("verbs.loader", source=FOLDER_SOURCE, severity="warning")
def test_verbs_loader(
    inspection: Inspection, files: Files, libraries: Libraries, fabric: str, require: Requirement
) -> None:
    """Every process gets the libibverbs and the libefa of the fabric's provider."""
    home = rdma_core_folders(files, libraries, fabric) or skip("libibverbs opens no provider: see verbs.provider")
    intended: dict[str, list[str]] = {}
    for name in ("libibverbs.so.1", *(["libefa.so.1"] if fabric == "efa" else [])):
        bundled = [p for p in inspection.libraries_named(name.removesuffix(".1")) if lib_folder(p) in home]
        intended |= {name: bundled} if bundled else {}
    if not intended:
        skip("the provider stands alone: there is no library beside it")
    loaded = {name: {libraries.resolved[name].file} for name in intended}
    for needed in libraries.closures.values():
        for name in intended.keys() & needed.libraries.keys():
            loaded[name].add(needed.libraries[name])
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
