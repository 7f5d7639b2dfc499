"""The NCCL of an image for a fabric, the plugin that it opens, and the fabric's libraries in wheels."""

import re
from pathlib import PurePosixPath

from rdma_images.chain.links import EFA_PLUGINS
from rdma_images.core.image import FABRIC_TITLES
from rdma_images.inspection.inspection import Inspection, InstalledNccl, base_name
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.in_use import LIBNCCL, NO_LIBRARY, found_plugin, has_broken_file
from validators.support.transports import opened_libraries

CUDA_FILE = re.compile(r"lib(?:cuda|cudart|cublas|cudnn|torch_cuda)[-_.\d\w]*\.so[.\d]*|\w+_perf")
LIBTORCH_CUDA = "libtorch_cuda"  # that has NCCL in itself
PROJECT_SOURCE = "the names and first lines of log in the plugins' own sources, see probes/libraries.py"
# The plugins that bring NCCL to a fabric. NCCL reaches eRDMA without one; those of verbs do not take it away.
FABRIC_PLUGINS = {"efa": EFA_PLUGINS, "erdma": ("nccl-rdma-sharp-plugins", "uccl-rdma")}
BUNDLED_SOURCE = "kvcache-ai/Mooncake, pull request 2271, and ai-dynamo/nixl, pull request 1929: what two copies did"
BUNDLED_LIBRARY = re.compile(r"(lib(?:fabric|efa|ibverbs|rdmacm))-[0-9a-f]{8}\.so.*")
MAX_SHOWN = 4


def uses_gpus(inspection: Inspection, files: Files, libraries: Libraries) -> bool:
    """Return whether the image asks for GPUs, or has what uses CUDA or NCCL."""
    devices = inspection.subject.environment.get("NVIDIA_VISIBLE_DEVICES", "")
    cuda = any(CUDA_FILE.fullmatch(base_name(path)) for path in files.library_files)
    return bool(devices) or cuda or any(LIBNCCL in loaded.missing for loaded in libraries.closures.values())


@validator("nccl.found", source="a training image without NCCL cannot use a fabric")
def test_found(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """A libnccl.so.2, by that name, is in the image, or NCCL in torch's own library, where anything in it uses GPUs."""
    if has_broken_file(inspection, libraries, LIBNCCL):
        skip(NO_LIBRARY)
    if not libraries.nccl and not uses_gpus(inspection, files, libraries):
        skip("nothing in the image uses GPUs")
    nameless = _nameless_nccl(inspection, files, libraries)
    require(
        any(not library.error for library in libraries.nccl.values()) and not nameless,
        expected=f"at least one {LIBNCCL}",
        actual=f"programs ask for {LIBNCCL}, and there is only {nameless}, without a link of that name"
        if nameless
        else ", ".join(libraries.nccl) or f"NCCL is not installed: no {LIBNCCL} in the whole file system",
        fix=f"ln -s {base_name(nameless)} {PurePosixPath(nameless).parent}/{LIBNCCL}, or run ldconfig after the copy: "
        "NCCL's links have to be copied, too"
        if nameless
        else "install torch with its NCCL wheel, or the wheel nvidia-nccl-cu13 (cu12 for CUDA 12)",
    )


def _nameless_nccl(inspection: Inspection, files: Files, libraries: Libraries) -> str:
    """Return a libnccl where none has a name that is asked for; "" where one has."""
    words = [word for value in inspection.subject.environment.values() for word in re.split(r"[:\s]+", value)]
    readable = [path for path, library in libraries.nccl.items() if not library.error]
    file_names = {LIBNCCL, "libnccl.so", *map(base_name, words)}
    has_name = any(base_name(path) in file_names for path in files.library_files) or any(
        LIBTORCH_CUDA in path for path in readable
    )
    return "" if has_name or not readable else readable[0]


@validator("plugin.project", source=PROJECT_SOURCE)
def test_project(
    inspection: Inspection, fabric: str, libraries: Libraries, nccl: InstalledNccl, require: Requirement
) -> None:
    """The plugin that NCCL opens is one that knows the fabric: the name libnccl-net.so is everybody's."""
    path, library = found_plugin(inspection, libraries, nccl)
    environment = inspection.subject.environment
    if fabric == "erdma" and environment.get("NCCL_NET", "").upper() == "IB":
        skip("NCCL_NET=IB: NCCL uses its own, whatever plugin it opens")
    stranger = fabric == "efa" and not any(name.startswith("libfabric.so") for name in library.needed)
    is_path = any("/" in word for word in environment.get("NCCL_NET_PLUGIN", "").split(","))
    if not library.project and (not stranger or library.error or is_path):
        skip(f"{path} does not say whose plugin it is")
    actual = f"{path}, which NCCL opens, is {library.project}"
    if library.project not in FABRIC_PLUGINS[fabric]:
        actual += f", which does not know {FABRIC_TITLES[fabric]}"
    if not library.project:
        actual = f"{path}, which NCCL opens, asks for no libfabric: it cannot reach EFA"
    require(
        library.project in FABRIC_PLUGINS[fabric],
        expected=f"{' or '.join(FABRIC_PLUGINS[fabric])}" if fabric == "efa" else "no plugin that takes NCCL off eRDMA",
        actual=actual,
        fix=f"remove {path}, put the folder of aws-ofi-nccl before its own, or set NCCL_NET_PLUGIN=ofi"
        if fabric == "efa"
        else f"remove {path}, or set NCCL_NET_PLUGIN=none: NCCL {nccl.version} reaches eRDMA by itself",
    )


def _is_for_the_fabric(path: str, fabric: str) -> bool:
    """Return whether a wheel's library is a copy of one by which, as far as is known, its package uses the fabric."""
    match = BUNDLED_LIBRARY.fullmatch(base_name(path))
    opens = opened_libraries(path, fabric)
    return match is not None and (opens is None or f"{match[1]}.so.1" in opens)


@validator("libraries.bundled", source=BUNDLED_SOURCE, severity="warning")
def test_bundled(files: Files, fabric: str, require: Requirement) -> None:
    """No wheel brings a libfabric or libibverbs of its own for the fabric, under the name that auditwheel gives it."""
    paths = [p for p, file in files.library_files.items() if not file.target and _is_for_the_fabric(p, fabric)]
    require(
        not paths,
        expected="none: a process then has two, each with its own devices and providers",
        actual=f"a wheel's own {', '.join(paths[:MAX_SHOWN])} finds none of the image's providers, and so no device"
        if paths
        else "none",
        fix="install a build of that wheel which takes the image's own library (auditwheel repair --exclude), or leave "
        "it out where NCCL uses the fabric",
    )
