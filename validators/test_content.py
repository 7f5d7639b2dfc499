"""Validators of the image's files: what takes space, and what must not be in it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from rdma_images.chain.verbs import opened_providers
from rdma_images.core import paths, versions, yaml_file
from rdma_images.core.yaml_file import Strict
from rdma_images.facts import facts_file
from rdma_images.facts.cuda import Cuda
from rdma_images.inspection.inspection import (
    FOLDER_PREFIX,
    Inspection,
    base_name,
    cuda_in_use,
)
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.probes import leftovers
from rdma_images.validate.pytest_plugin import Requirement, unmeasured
from validators.in_use import loads_nccl

LAYER_SOURCE = "a file that a later layer removes is still pulled, and still readable, with the layer that brought it"
CUDA_LIBRARY = re.compile(
    r"(lib(?:cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|nvJitLink|nvrtc)\.so\.\d+)(?:\.[\d.]+)?"
)
COMPAT_SOURCE = "docs.nvidia.com/deploy/cuda-compatibility: libcuda of a compat package is in place of the host's"
DRIVER_SOURCE = (
    "NVIDIA/nvidia-docker, issue 1256, and NVIDIA-NeMo/labs-molt, pull request 44: error 803 where the host's driver "
    "is newer; NVIDIA/libnvidia-container, issue 266: NVML fails where it is older"
)
# auditwheel puts eight digits into the name of what it copies into a wheel.
DRIVER_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)(?:-[0-9a-f]{8})?\.so\.(\d{3,}(?:\.\d+)+)")
HOST_KEY = re.compile(r"/etc/ssh/ssh_host_\w+_key")
HOST_KEY_SOURCE = (
    "Debian's openssh-server, debian/openssh-server.postinst: installing it makes the keys; sshd_config(5), HostKey"
)
WRITABLE_SOURCE = "CWE-732: whoever runs in the container can change what others run"
MEMLOCK_SOURCE = (
    "NVIDIA/nvidia-container-toolkit, issue 2037: IPC_LOCK is inert for a user that is not root, as was measured"
)
LIBCUDA = re.compile(r"/libcuda\.so\.(\d{3,}(?:\.\d+)+)$")
TOOLKIT_FOLDERS = ("/usr/local/cuda/", "/usr/local/cuda-")
ROOT = ("", "root", "0")  # how an image names that user
STUB_SIZE = 1 << 20  # bytes: the driver's libcuda is over 20 MiB, the toolkit's stub under 100 KiB
MAX_SHOWN = 8


class Budgets(Strict):
    """validators/budgets.yaml: bytes to pull, by target."""

    bytes_to_pull: dict[str, int]


class Leftover(NamedTuple):
    """A file that has no business in an image; `layer` is 0 for the whole file system."""

    kind: str
    path: str
    why: str
    layer: int

    def __str__(self) -> str:
        """Return the path, and why and where it was found."""
        return f"{self.path} ({self.why}{f', layer {self.layer}' if self.layer else ''})"


@pytest.fixture
def found_leftovers(inspection: Inspection) -> list[Leftover]:
    """Return the leftovers in any layer; without layers, in the file system that they make."""
    layers, tree = inspection.measured.layers, inspection.measured.tree
    if layers is None and (tree is None or "layers" in inspection.measured.lost):
        unmeasured(inspection, "layers")
    sources = [(0, tree.files.leftovers)] if tree and layers is None else []
    sources += [(number, layer.leftovers) for number, layer in enumerate(layers or (), 1)]
    return [
        Leftover(kind, path, why, number)
        for number, source in sources
        for kind, reasons in source
        for path, why in reasons.items()
    ]


def shorten_list(entries: Sequence[object]) -> str:
    """Return the first few, and how many more."""
    more = f" and {len(entries) - MAX_SHOWN} more" if len(entries) > MAX_SHOWN else ""
    return ", ".join(map(str, entries[:MAX_SHOWN])) + more


def megabytes(size: int) -> str:
    """Return bytes for people."""
    return f"{size / 1e6:,.0f} MB"


@pytest.mark.validator("layers.secrets", source=LAYER_SOURCE)
def test_secrets(found_leftovers: list[Leftover], require: Requirement) -> None:
    """No secret lies in any layer, as the content of its files shows."""
    secrets = [
        leftover
        for leftover in found_leftovers
        if leftover.kind == "secret" and leftover.why != leftovers.BY_NAME and not HOST_KEY.fullmatch(leftover.path)
    ]
    require(
        not secrets,
        expected="none",
        actual=f"everybody who pulls the image can read {shorten_list(secrets)}" if secrets else "none",
        fix="replace the secret: everybody who pulled the image has it; use --mount=type=secret in builds",
    )


@pytest.mark.validator("layers.secret-names", source=LAYER_SOURCE, severity="warning")
def test_secret_names(found_leftovers: list[Leftover], require: Requirement) -> None:
    """No layer has a file in which programs keep logins, also where its content is of no known form."""
    files = [entry.path for entry in found_leftovers if entry.kind == "secret" and entry.why == leftovers.BY_NAME]
    require(
        not files,
        expected="none",
        actual=f"programs keep logins in {shorten_list(files)}, which everybody who pulls the image can read"
        if files
        else "none",
        fix="remove the file in the step that makes it, or mount it with --mount=type=secret",
    )


@pytest.mark.validator("layers.host-keys", source=HOST_KEY_SOURCE, severity="warning")
def test_host_keys(found_leftovers: list[Leftover], require: Requirement) -> None:
    """No layer holds the keys of an SSH server, by which every container is the same host."""
    keys = [entry.path for entry in found_leftovers if entry.kind == "secret" and HOST_KEY.fullmatch(entry.path)]
    require(
        not keys,
        expected="none",
        actual=f"{shorten_list(keys)}: all containers have the same SSH host key" if keys else "none",
        fix="remove them in the layer that installs openssh-server, and run `ssh-keygen -A` when the container starts",
    )


@pytest.mark.validator("layers.caches", source=LAYER_SOURCE, severity="note")
def test_caches(found_leftovers: list[Leftover], require: Requirement) -> None:
    """No package manager's cache lies in any layer."""
    caches = [leftover for leftover in found_leftovers if leftover.kind == "cache"]
    require(
        not caches,
        expected="none",
        actual=shorten_list(caches) or "none",
        fix="use --mount=type=cache, or remove them in the same RUN: rm -rf /var/lib/apt/lists/*, pip --no-cache-dir",
    )


@pytest.mark.validator("layers.temporary", source=LAYER_SOURCE, severity="note")
def test_temporary(found_leftovers: list[Leftover], require: Requirement) -> None:
    """No temporary file lies in any layer."""
    temporary = [leftover for leftover in found_leftovers if leftover.kind == "temporary"]
    require(
        not temporary,
        expected="none",
        actual=shorten_list(temporary) or "none",
        fix="remove them in the RUN that makes them",
    )


@pytest.mark.validator("files.writable", source=WRITABLE_SOURCE, severity="warning")
def test_writable(files: Files, require: Requirement) -> None:
    """Nothing but sticky folders is writable for everybody."""
    refused = any("/.ssh" in path for path in files.world_writable)
    keys = ": sshd refuses the keys in .ssh" if refused else ""
    require(
        not files.world_writable,
        expected="none",
        actual=f"everybody may write to {shorten_list(files.world_writable)}{keys}" if files.world_writable else "none",
        fix=f"chmod o-w {' '.join(files.world_writable[:MAX_SHOWN])}",
        severity=None if refused else "note",  # makers open /workspace to any user
    )


def toolkit_copies(inspection: Inspection, paths: list[str]) -> list[str]:
    """Return the toolkit's copies of libraries that torch maps from a wheel.

    The toolkit has them for its own programs. A process has one library of a name: other modules, as torchvision's, get
    what torch has loaded.
    """
    tree, torch = inspection.measured.tree, inspection.measured.torch
    mapped = set(torch.mapped if torch else ())
    for path, closure in (tree.libraries.closures if tree else {}).items():
        mapped |= set(closure.libraries.values()) if "/torch/lib/" in path else set()
    by_wheels = any("-packages/" in path for path in paths)
    return [path for path in paths if by_wheels and path.startswith(TOOLKIT_FOLDERS) and path not in mapped]


@pytest.mark.validator(
    "cuda.single", source="two copies of one CUDA library in a process each keep their own state", severity="warning"
)
def test_cuda_single(inspection: Inspection, files: Files, require: Requirement) -> None:
    """Each CUDA library is in the image once, but for those of a toolkit."""
    copies: dict[str, list[str]] = {}
    for path, file in files.libraries.items():
        if "/stubs/" not in path and not file.target and (match := CUDA_LIBRARY.fullmatch(base_name(path))):
            copies.setdefault(match.group(1), []).append(path)
    if not copies:
        pytest.skip("the image has no CUDA libraries")
    separate = {path for copies_of_name in copies.values() for path in toolkit_copies(inspection, copies_of_name)}
    relevant = {
        name: [path for path in copies_of_name if path not in separate] for name, copies_of_name in copies.items()
    }
    repeated = {name: copies_of_name for name, copies_of_name in relevant.items() if len(copies_of_name) > 1}
    require(
        not repeated,
        expected=f"{len(copies)} libraries, each once" + (", beside a toolkit's own" if separate else ""),
        actual="; ".join(f"{name}: {', '.join(copies_of_name)}" for name, copies_of_name in repeated.items())
        or "each once",
        fix="keep the wheels' and leave the toolkit out, or the other way round",
    )


@pytest.mark.validator("cuda.stub", source="CUDA toolkit: the libcuda in its stubs folder is for linking only")
def test_cuda_stub(files: Files, libraries: Libraries, require: Requirement) -> None:
    """The loader does not find a stub of the driver."""
    if not loads_nccl(files, libraries):
        pytest.skip("there is no NCCL: what runs without GPUs may bring a stub to start at all")
    answer = libraries.resolved["libcuda.so.1"]
    file = files.libraries.get(answer.file)
    size = f"{file.size} bytes" if file else "mounted into the container"
    stub = bool(answer.file) and ("/stubs/" in answer.file or (file is not None and file.size < STUB_SIZE))
    require(
        not stub,
        expected="no libcuda.so.1 (the runtime brings the driver's), or a whole one",
        actual=(f"{answer.file}, {size}" if answer.file else "none")
        + (', comes before the driver\'s: NCCL ends with "CUDA driver is a stub library"' if stub else ""),
        fix="take the stubs folder out of ld.so.conf.d and LD_LIBRARY_PATH, run ldconfig",
    )


@pytest.mark.validator("cuda.compat", source=COMPAT_SOURCE)
def test_compat(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """A driver library of the image that the loader finds is as new as the CUDA in use asks for."""
    answer = libraries.resolved["libcuda.so.1"]
    match = LIBCUDA.search(answer.file) or pytest.skip("the image has no libcuda of a driver")
    cuda = cuda_in_use(inspection, libraries) or pytest.skip("nothing says which CUDA is in use")
    table = facts_file.read(Cuda)
    row = table.majors.get(cuda.partition(".")[0]) or pytest.skip(f"no driver is known for CUDA {cuda}")
    on_machine = inspection.subject.ref.startswith(FOLDER_PREFIX)  # whose own driver it then is
    is_new = versions.at_least(match.group(1), row.driver)
    require(
        is_new,
        expected=f"{row.driver} or later, which CUDA {cuda} asks for [{table.cite(row)}]",
        actual=f"driver {match.group(1)} at {answer.file}"
        + ("" if on_machine else " comes before the host's")
        + ("" if is_new else f": too old for CUDA {cuda}, which does not start"),
        fix=f"update the driver, or install the cuda-compat of CUDA {cuda}"
        if on_machine
        else f"take {answer.path.rpartition('/')[0]} off LD_LIBRARY_PATH and /etc/ld.so.conf.d and run ldconfig, or "
        f"install the cuda-compat of CUDA {cuda}",
    )


def driver_versions(inspection: Inspection, files: Files, libraries: Libraries) -> dict[str, str]:
    """Return what the image holds of a driver, by path: its version, or "" for an empty file.

    A compat package counts where the loader finds it. What a runtime mounts where there are devices does not count.
    """
    if inspection.measured.devices or inspection.measured.gpus:
        return {}
    by_version = {}
    for path, file in files.libraries.items():
        match = DRIVER_LIBRARY.fullmatch(base_name(path))
        is_relevant = "/stubs/" not in path and (
            path == libraries.resolved["libcuda.so.1"].file or "compat" not in path
        )
        if match and is_relevant and not file.target and (file.condition == "empty" or file.size >= STUB_SIZE):
            by_version[path] = "" if file.condition == "empty" else match.group(1)
    return by_version


@pytest.mark.validator("cuda.driver", source=DRIVER_SOURCE, severity="warning")
def test_cuda_driver(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """The image brings no library of a driver: the runtime mounts the host's."""
    drivers = driver_versions(inspection, files, libraries)
    row = facts_file.read(Cuda).majors.get(cuda_in_use(inspection, libraries).partition(".")[0])
    version = drivers.get(libraries.resolved["libcuda.so.1"].file)
    if version and row and not versions.at_least(version, row.driver):
        pytest.skip("it is too old as well: see cuda.compat")
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


@pytest.mark.validator("user.memlock", source=MEMLOCK_SOURCE, severity="note")
def test_memlock(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """The image's user may lock the memory that RDMA registers, where a pod is given IPC_LOCK."""
    name = inspection.subject.user
    if not inspection.subject.digest:
        pytest.skip("a host is no image, and has no user of its own")
    if not inspection.expected.fabric and not (loads_nccl(files, libraries) and opened_providers(files, libraries)):
        pytest.skip("the image has no NCCL, or no verbs provider: it uses no RDMA")
    require(
        name.partition(":")[0] in ROOT,
        expected="root, whom the capability IPC_LOCK frees from the limit memlock",
        actual=f"the image runs as {name}, for whom IPC_LOCK has no effect: RDMA needs a host that raises memlock"
        if name
        else "root",
        fix="raise memlock (docker run --ulimit memlock=-1, LimitMEMLOCK of containerd), or run it as root",
    )


@pytest.mark.validator("size.budget", source="validators/budgets.yaml", severity="warning")
def test_budget(inspection: Inspection, require: Requirement) -> None:
    """The image takes no more to pull than its target's budget."""
    budgets = yaml_file.load(paths.VALIDATORS / "budgets.yaml", Budgets).bytes_to_pull
    target = inspection.expected.target or inspection.subject.label("target") or ""
    budget = budgets.get(target) or pytest.skip(f"no budget is set for {target or 'an image without a target'}")
    layers = inspection.measured.layers
    if layers is None:
        unmeasured(inspection, "layers")
    size = sum(layer.bytes for layer in layers)
    if size > sum(layer.unpacked for layer in layers):  # a tar file has its files and their headers
        pytest.skip("the engine keeps no compressed layers: what a pull takes is unknown")
    sizes = inspection.measured.tree.files.sizes if inspection.measured.tree else {}
    largest = ", ".join(f"{folder} {megabytes(size)}" for folder, size in list(sizes.items())[:MAX_SHOWN])
    require(
        size <= budget,
        expected=f"at most {megabytes(budget)}",
        actual=f"{megabytes(size)}; unpacked, most is in {largest}",
        fix="take out what the target does not need, or raise the budget in validators/budgets.yaml with a reason",
    )
