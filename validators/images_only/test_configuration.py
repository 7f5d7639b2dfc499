"""What only an image has: its user, its variables, and no driver of its own."""

import re

from rdma_images.chain.verbs import opened_providers
from rdma_images.core import leftovers, versions
from rdma_images.facts import facts_file
from rdma_images.facts.gpu_software import Cuda
from rdma_images.inspection.inspection import Inspection, base_name, cuda_in_use
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.applies import in_tree
from validators.support.in_use import loads_nccl

DRIVER_SOURCE = (
    "NVIDIA/nvidia-docker, issue 1256, and NVIDIA-NeMo/labs-molt, pull request 44: error 803 where the host's driver "
    "is newer; NVIDIA/libnvidia-container, issue 266: NVML fails where it is older"
)
# auditwheel puts eight digits into the name of what it copies into a wheel.
DRIVER_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)(?:-[0-9a-f]{8})?\.so\.(\d{3,}(?:\.\d+)+)")
MEMLOCK_SOURCE = (
    "NVIDIA/nvidia-container-toolkit, issue 2037: IPC_LOCK is inert for a user that is not root, as was measured"
)
ROOT = ("", "root", "0")  # how an image names that user
STUB_SIZE = 1 << 20  # bytes: the driver's libcuda is over 20 MiB, the toolkit's stub under 100 KiB


def driver_versions(inspection: Inspection, files: Files, libraries: Libraries) -> dict[str, str]:
    """Return what the image holds of a driver, by path: its version, or "" for an empty file.

    A compat package counts where the loader finds it. Files that a runtime mounts beside devices do not count.
    """
    if inspection.measured.devices or inspection.measured.gpus:
        return {}
    by_version = {}
    for path, file in files.library_files.items():
        match = DRIVER_LIBRARY.fullmatch(base_name(path))
        is_relevant = "/stubs/" not in path and (
            path == libraries.resolved["libcuda.so.1"].file or "compat" not in path
        )
        if match and is_relevant and not file.target and (file.condition == "empty" or file.size >= STUB_SIZE):
            by_version[path] = "" if file.condition == "empty" else match.group(1)
    return by_version


@validator("cuda.driver", source=DRIVER_SOURCE, severity="warning")
def test_cuda_driver(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """The image brings no library of a driver: the runtime mounts the host's."""
    drivers = driver_versions(inspection, files, libraries)
    row = facts_file.read(Cuda).majors.get(cuda_in_use(inspection, libraries).partition(".")[0])
    version = drivers.get(libraries.resolved["libcuda.so.1"].file)
    if version and row and not versions.at_least(version, row.driver):
        skip("it is too old as well: see cuda.compat")
    compat = [path for path in drivers if "compat" in path]
    folders = ", ".join(dict.fromkeys(path.rpartition("/")[0] for path in compat))
    require(
        not drivers,
        expected="no libcuda or libnvidia-ml of a driver, as the runtime brings the host's",
        actual="; ".join(
            f"{path} of driver {driver} hides the host's: CUDA fails where that is another"
            if driver
            else f"{path}, empty, is left of a build with GPUs, and hides the driver's"
            for path, driver in drivers.items()
        )
        or "none",
        fix=f"take {folders} off LD_LIBRARY_PATH and /etc/ld.so.conf.d, run ldconfig, and let the start of the image "
        "add it only where the host's driver is older"
        if compat
        else f"remove {', '.join(drivers)} and the links to them, with the package that brings them; "
        "empty ones are left where NVIDIA's runtime built the image: build it with runc",
    )


def uses_rdma(inspection: Inspection) -> bool:
    """Return whether an image is for a fabric, or has an NCCL and a verbs provider."""
    has_parts = in_tree(lambda files, libraries: loads_nccl(files, libraries) and opened_providers(files, libraries))
    return inspection.expected.fabric is not None or has_parts(inspection)


@validator("user.memlock", source=MEMLOCK_SOURCE, severity="note", when=uses_rdma)
def test_memlock(inspection: Inspection, require: Requirement) -> None:
    """The image's user may lock the memory that RDMA registers, where a pod is given IPC_LOCK."""
    name = inspection.subject.user
    require(
        name.partition(":")[0] in ROOT,
        expected="root, whom the capability IPC_LOCK frees from the limit memlock",
        actual=f"the image runs as {name}, for whom IPC_LOCK has no effect: RDMA needs a host that raises memlock"
        if name
        else "root",
        fix="raise memlock (docker run --ulimit memlock=-1, LimitMEMLOCK of containerd), or run it as root",
    )


@validator("environment.secret", source="a configuration and its history are readable by all who pull them")
def test_secret(inspection: Inspection, require: Requirement) -> None:
    """No secret is in the environment, the labels or the history."""
    values = {**inspection.subject.environment, **inspection.subject.labels}
    names = [name for name, value in values.items() if leftovers.is_secret_value(name, value)]
    steps = [kind for step in inspection.subject.history if (kind := leftovers.find_secret(step.made_by.encode()))]
    lines = [*names, *(f"a step of the history ({kind})" for kind in steps)]
    require(
        not lines,
        expected="none",
        actual=f"{', '.join(lines)} has a secret, which everybody who pulls the image can read" if lines else "none",
        fix="give secrets to a build with --mount=type=secret, replace those that were published, and build again",
    )
