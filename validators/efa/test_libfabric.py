"""libfabric, its efa provider, and the tool that shows them."""

from collections.abc import Iterator, Mapping

from rdma_images.core import versions
from rdma_images.facts import facts_file
from rdma_images.facts.fabric_software import EFA_INSTALLER, Efa
from rdma_images.inspection.inspection import Inspection, base_name, missing_in
from rdma_images.inspection.measurements import Libraries, MeasuredPackages
from rdma_images.inspection.values import ToolRun
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.in_use import LIBFABRIC, NO_LIBRARY, describe_lack, has_broken_file, plugin_path
from validators.support.tool_runs import summary, tool_run
from validators.support.variables import rdma_core

LOADER_SOURCE = "ld.so(8): the order in which the dynamic loader searches"
DLOPEN_SOURCE = "ofiwg/libfabric src/hmem_cuda.c; awslabs/awsome-distributed-ai, the Dockerfile of nvidia-isaac-lab"
VERSION_SOURCE = (
    "facts/efa-installer.yaml; ai-dynamo/dynamo, pull request 12000: transfers over EFA with upstream's timed out"
)
AWS_BUILD = "a version with amzn in it"
FIRST_AWS_BUILD = "1.40.0"  # since which each EFA installer of the facts brings a libfabric called ...amzn...
FI_INFO_SOURCE = "fi_info(1)"
ENODATA = 61  # what fi_info ends with where a provider has no device
LIBFABRIC_FIX = (
    "run the EFA installer last, and build no other libfabric into its folder: AWS tests its plugin, NIXL and "
    "rdma-core with its own"
)
RDMA_CORE_FIX = (
    "remove what brings it (the base's MOFED, or the distribution's rdma-core), then run the EFA installer: an older "
    "libefa says less of the device, and the plugin then chooses a slower protocol than other ranks"
)


def fi_info(inspection: Inspection) -> dict[str, ToolRun]:
    """Return what fi_info printed; skips where it could not run, which has a check of its own."""
    runs = inspection.measured.tools or skip(inspection.measured.missing.get("tools", "fi_info was not run"))
    if runs["fi_info --version"].exit_code != 0:
        skip("fi_info does not run: see libfabric.fi-info")
    return runs


@validator("libfabric.closure", source=f"{LOADER_SOURCE}; {DLOPEN_SOURCE}")
def test_libfabric_closure(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """Every library that libfabric needs, or opens by its name for the GPUs that NCCL uses, is found."""
    library = libraries.resolved[LIBFABRIC].file or skip("the loader finds no libfabric: see chain.holds")
    missing = missing_in(libraries, library)
    if has_broken_file(inspection, libraries, LIBFABRIC, *missing):
        skip(NO_LIBRARY)
    plugins = {
        path for nccl in libraries.nccl if (path := plugin_path(inspection, libraries, nccl)) in libraries.plugins
    }
    reported = {name for path in plugins for name in libraries.plugins[path].opens if not libraries.resolved[name].file}
    opened = [name for name in libraries.opens.get(library, ()) if libraries.nccl and name not in reported]
    problems = [f"libfabric cannot be loaded: {describe_lack(inspection, missing)}"] if missing else []
    problems += [
        f"{library} does not know the GPUs' memory: it opens {name}, and the image has {_similar(inspection, name)}"
        for name in opened
    ]
    fixes = [f"install what brings {', '.join(missing)} (rdma-core's libraries come with the EFA installer)"]
    fixes = (fixes if missing else []) + [
        f"link {name} to the image's {name}.<number>, in a folder that the loader knows, and run ldconfig: without it "
        "libfabric does not know the GPUs' memory, and the plugin does not start on p4d.24xlarge, p5.48xlarge and "
        "others that require GPUDirect"
        for name in opened
    ]
    require(
        not missing and not opened,
        expected="nothing missing",
        actual="; ".join(problems) or f"complete for {library}",
        fix="; ".join(fixes),
    )


def _similar(inspection: Inspection, name: str) -> str:
    """Return a library whose name goes on after `name`, as that of a version does, in words."""
    others = sorted({base_name(path) for path in inspection.libraries_named(name)} - {name})
    return f"only {others[0]}" if others else "none"


@validator("libfabric.version", source=VERSION_SOURCE, severity="warning")
def test_libfabric_version(
    inspection: Inspection, libraries: Libraries, packages: MeasuredPackages, require: Requirement
) -> None:
    """The libfabric under /opt/amazon/efa is the EFA installer's, and no libefa or libibverbs is older than its own."""
    if inspection.stand_in_id(EFA_INSTALLER):
        skip("a stand-in took the place of the EFA installer")
    installer = packages.efa_installer or skip("the image does not say which EFA installer made it")
    row = facts_file.read(Efa).releases.get(installer)
    bundled = row.libfabric if row else None
    official = bundled or (AWS_BUILD if versions.at_least(installer, FIRST_AWS_BUILD) else "")
    by_path = {
        path: stated for path, stated in libraries.libfabric.items() if stated and path.startswith("/opt/amazon/efa/")
    }
    foreign = list(_foreign_libfabric(by_path, bundled)) if official else []
    verbs = {path: versions.major(version) for path, version in rdma_core(libraries).items()}
    required_core = row.rdma_core if row else None
    older = list(_older_rdma_core(verbs, required_core)) if required_core else []
    if not (by_path and official) and not (verbs and required_core):
        skip("it is not known which libfabric and rdma-core the EFA installer brought, or which are there")
    expected = [official] if by_path else []
    expected += [f"rdma-core {required_core} or later"] if verbs and required_core else []
    found = [*by_path.values(), *(f"rdma-core {major}" for major in dict.fromkeys(verbs.values()))]
    require(
        not foreign and not older,
        expected=f"{' and '.join(expected)}, of the EFA installer {installer}",
        actual="; ".join([*foreign, *older]) or ", ".join(found),
        fix=LIBFABRIC_FIX if foreign else RDMA_CORE_FIX,
    )


def _foreign_libfabric(by_path: Mapping[str, str], bundled: str | None) -> Iterator[str]:
    """Yield a sentence for each libfabric that is not the installer's, or where that is unknown none of AWS's."""
    for path, version in by_path.items():
        if not ("amzn" in version if not bundled else version == bundled or version.startswith(f"{bundled}amzn")):
            own = f"not the EFA installer's {bundled or 'build by AWS'}"
            yield f"{path} is libfabric {version}, {own}, with which the plugin was tested"


def _older_rdma_core(verbs: Mapping[str, int], required: str) -> Iterator[str]:
    """Yield a sentence for each library of an rdma-core older than the installer's, and what that costs."""
    for path, major in verbs.items():
        if major < versions.major(required):
            is_libefa = base_name(path).startswith("libefa")
            effect = "tells the plugin less of the device" if is_libefa else "lacks its fixes"
            yield f"{path} is of rdma-core {major}, older than the EFA installer's {required}, and {effect}"


@validator("libfabric.fi-info", source=FI_INFO_SOURCE)
def test_fi_info(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """fi_info is there and runs."""
    run = tool_run(inspection, libraries, "fi_info --version", "chain.holds or libfabric.closure")
    if isinstance(run, str):
        skip(run)
    require(
        run.exit_code == 0 and "libfabric:" in run.stdout,
        expected="`fi_info --version` prints libfabric's version",
        actual=summary(run),
        fix="install libfabric's tools with the EFA installer and put /opt/amazon/efa/bin on the PATH",
        severity=None if run.path else "warning",
    )


@validator("libfabric.device", source="fi_info(1): 61 is FI_ENODATA, no device answers")
def test_asks_efa(fi_info: dict[str, ToolRun], require: Requirement) -> None:
    """Asking for EFA devices gives an answer, or says that there are none."""
    run = fi_info["fi_info -p efa"]
    require(
        run.exit_code == 0 or (run.exit_code == ENODATA and f"fi_getinfo: -{ENODATA}" in run.stderr),
        expected="domains of EFA, or exit code 61 without a device",
        actual=summary(run),
        fix="run `fi_info -p efa -t FI_EP_RDM` in the image with FI_LOG_LEVEL=info",
    )
