"""Check that the GPUs are here, work, and start CUDA."""

from __future__ import annotations

import errno
import glob
import itertools
import os
import re
import sys
from typing import TYPE_CHECKING

from rdma_images.jobs.node.system import TIMED_OUT, has_library, kernel_messages, open_errno, run_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rdma_images.jobs.node.finding import Finding

XID_SECONDS = 24 * 3600.0  # seconds for which an error of a GPU counts
# GPUs that need a reset or a repair, as NVIDIA's catalogue of Xid errors has them: memory, NVLink, GSP, off the bus.
BAD_XIDS = {"48", "63", "64", "74", "79", "92", "94", "95", "119", "120", "140", "143"}


def check_gpus(root: str, count: int, nodes: int) -> Iterator[Finding]:
    """Yield GPUs that are missing or broken, and NVLinks that are down."""
    gpus = glob.glob(root + "/dev/nvidia[0-9]*")
    if len(gpus) < count:
        yield "error", "gpus", "%d of %d GPUs are in the container" % (len(gpus), count)
    elif gpus:
        yield from check_visible_gpus(os.environ, count, len(gpus))
    yield from check_device_files(gpus, count)
    if not gpus or root:
        return
    answer = run_program(
        "nvidia-smi", "--query-gpu=index,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader"
    )
    if answer is None:
        return
    code, text = answer
    shown = [row for row in text.splitlines() if re.match(r"\d+,", row)]
    if not code and len(shown) < len(gpus):
        yield "error", "gpus", "nvidia-smi shows %d of the %d GPUs that are here" % (len(shown), len(gpus))
    if code:
        yield "error", "gpus", "nvidia-smi: %s" % (text.strip().splitlines() or ["exit code %d" % code])[-1]
    bad = [row.split(",")[0] for row in text.splitlines() if re.fullmatch(r"\d+, *[1-9]\d*", row.strip())]
    if not code and bad:
        yield "warning", "gpus", "uncorrected memory errors on GPU %s" % ", ".join(bad)
    details = run_program("nvidia-smi", "-q")
    if details and not details[0]:
        yield from gpu_states(details[1])
        yield from check_imex(root, details[1], nodes)
    yield from check_nvlink()


def check_nvlink() -> Iterator[Finding]:
    """Yield a finding if a link of a GPU is down, of which others are up."""
    links = run_program("nvidia-smi", "nvlink", "--status")
    if links and re.search(r"Link \d+: <?inactive", links[1], re.IGNORECASE):
        yield "warning", "nvlink", "an NVLink is inactive: nvidia-smi nvlink --status"


def has_nvlink(root: str, count: int) -> bool:
    """Return whether all `count` GPUs of this node, at least two, have NVLink."""
    answer = run_program("nvidia-smi", "nvlink", "--status") if count > 1 and not root else None
    sections = re.split(r"^GPU \d+:", answer[1], flags=re.MULTILINE)[1:] if answer and not answer[0] else []
    return len(sections) == count and all(re.search(r"Link \d+: [\d.]+ GB/s", section) for section in sections)


def check_visible_gpus(variables: Mapping[str, str], count: int, present: int) -> Iterator[Finding]:
    """Yield GPUs that CUDA_VISIBLE_DEVICES takes from this process, as under Slurm.

    Args:
        variables: The environment.
        count: GPUs that the job has on each node; 0 for those that are visible.
        present: GPUs that are in the container.
    """
    setting = variables.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return
    visible = len(visible_gpu_names(setting, present))
    is_for_task = any(variables.get(name) for name in ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"))
    reason = ", since Slurm gives each task its own (--gpus-per-task, --ntasks-per-gpu)" if is_for_task else ""
    if setting == "NoDevFiles":
        reason = ", as Slurm sets it for a job that asks for none: give it --gpus or --gres"
    if visible < count:
        yield "error", "gpus", "CUDA_VISIBLE_DEVICES=%s leaves %d of %d GPUs%s" % (setting, visible, count, reason)
    elif not visible:
        yield "warning", "gpus", "CUDA_VISIBLE_DEVICES=%s leaves none of the %d GPUs%s" % (setting, present, reason)
    elif is_for_task and visible == 1:
        sentence = "each of Slurm's tasks sees one GPU: a program that starts its ranks itself needs one task on a node"
        yield "note", "gpus", sentence + " that sees all (--ntasks-per-node=1 --gpus-per-node)"


def visible_gpu_names(setting: str, present: int) -> list[str]:
    """Return the GPUs of a CUDA_VISIBLE_DEVICES, up to the first that is not present."""

    def is_gpu(name: str) -> bool:
        return int(name) < present if name.isdecimal() else name.startswith(("GPU-", "MIG-"))

    return list(itertools.takewhile(is_gpu, (name.strip() for name in setting.split(","))))


def check_device_files(gpus: list[str], count: int) -> Iterator[Finding]:
    """Yield GPUs whose files are here, and which a cgroup does not let this container open."""
    # Of other errors the GPU itself is broken, which others report.
    unopenable = [path for path in sorted(gpus) if open_errno(path) in (errno.EPERM, errno.EACCES)]
    if unopenable and len(gpus) - len(unopenable) < max(1, count):  # of other jobs' GPUs Slurm lets none be opened
        sentence = (
            "%s may not be opened (%s): the container's cgroup has lost its devices, as after "
            "`systemctl daemon-reload`: start it again, with CDI"
        )
        yield "error", "gpus", sentence % (", ".join(unopenable[:8]), os.strerror(open_errno(unopenable[0])))


def gpu_states(text: str) -> Iterator[Finding]:
    """Yield GPUs that ranks cannot use as they are, by what `nvidia-smi -q` prints."""
    sentences: dict[tuple[str, str], list[str]] = {}
    for number, section in enumerate(re.split(r"^GPU [\dA-F:.]+$", text, flags=re.MULTILINE)[1:]):
        states = (
            (
                "error",
                "the fabric of NVSwitch is not ready, see nvidia-fabricmanager",
                r"Fabric\s+State\s+: (?!N/A|Comp)\w",
            ),
            (
                "error",
                "the fabric of NVSwitch registered it with an error, see Fabric in nvidia-smi -q",
                r"Fabric\s+State\s+: Completed\s+Status\s+: (?!N/A|Success)\w",
            ),
            ("error", "no process may use it, by its compute mode", r"Compute Mode\s+: Prohibited"),
            ("warning", "MIG is on, and NCCL refuses two instances of one GPU", r"MIG Mode\s+Current\s+: Enabled"),
            ("warning", "rows of its memory wait for a reset", r"Remapped Rows(?:\n.*){0,3}\n\s+Pending\s+: Yes"),
            ("warning", "rows of its memory could not be remapped", r"Remapping Failure Occurred\s+: Yes"),
            ("warning", "pages of its memory wait for a reset", r"Retired Pages(?:\n.*){0,4}Pending[\w ]*: Yes"),
            ("warning", "another process uses its memory", r"Process ID\s+: \d+"),
        )
        for severity, sentence, pattern in states:
            if re.search(pattern, section):
                sentences.setdefault((severity, sentence), []).append(str(number))
    for (severity, sentence), numbers in sentences.items():
        yield severity, "gpus", "GPU %s: %s" % (", ".join(numbers), sentence)


def check_imex(root: str, states: str, nodes: int) -> Iterator[Finding]:
    """Yield a finding if NVLink leads to other nodes, and there is no IMEX channel."""
    clusters = set(re.findall(r"ClusterUUID\s+: ([\da-f-]+)", states)) - {"00000000-0000-0000-0000-000000000000"}
    is_ignored = os.environ.get("NCCL_MNNVL_ENABLE") == "0"
    if nodes > 1 and clusters and not is_ignored and not glob.glob(root + "/dev/nvidia-caps-imex-channels/channel*"):
        sentence = (
            "NVLink leads to other nodes, and /dev/nvidia-caps-imex-channels has no channel here: NCCL ends with an "
            "error where two nodes are of one NVLink domain: start nvidia-imex and give the job a channel"
        )
        yield "warning", "imex", sentence


CUDA_STATES = {
    34: "the CUDA toolkit's stub, which LD_LIBRARY_PATH or the image puts before the driver's own libcuda.so.1",
    802: "as when nvidia-fabricmanager does not run, or is of another version than the driver",
    803: "as when the image's CUDA compatibility libraries do not fit the node's driver",
    999: "as when nvidia-uvm is not loaded, or the driver was updated without a restart",
}
UNKNOWN_ERROR = 999  # CUDA_ERROR_UNKNOWN
UVM_DEVICE = "/dev/nvidia-uvm"  # of unified memory, without which CUDA starts on no GPU
CUDA_PROGRAM = """
import ctypes
text, cuda = ctypes.c_char_p(), ctypes.CDLL("libcuda.so.1")
code = cuda.cuInit(0)
cuda.cuGetErrorString(code, ctypes.byref(text))
library = next((line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line), "")
print(code, (text.value or b"").decode() or library)
"""


def check_cuda(root: str, gpus: list[str]) -> Iterator[Finding]:
    """Yield a finding if CUDA does not start here, in a process of its own."""
    if not gpus or root:
        return
    if not has_library("libcuda.so.1"):
        sentence = (
            "libcuda.so.1, the driver's, is not found, and GPUs are here: the container lacks the driver capability "
            "compute (NVIDIA_DRIVER_CAPABILITIES=compute,utility), or was started without NVIDIA's runtime"
        )
        yield "error", "cuda", sentence
        return
    answer = run_program(sys.executable, "-c", CUDA_PROGRAM)
    if answer and answer[0] < 0:
        yield "error", "cuda", "a process that starts CUDA is ended by signal %d" % -answer[0]
    elif answer and answer[0] == TIMED_OUT:  # eight GPUs without persistence mode are slow, too
        yield "warning", "cuda", "CUDA does not start: %s" % answer[1]
    match = re.match(r"(\d+) (.*)", answer[1]) if answer and not answer[0] else None
    if match and match.group(1) not in ("0", "100"):  # that no device is left to this process, others report
        code = int(match.group(1))
        cause = ": " + CUDA_STATES[code] if code in CUDA_STATES else ""
        if code == UNKNOWN_ERROR and not os.path.exists(UVM_DEVICE):
            cause = (
                ": %s is not in the container: start it with all of NVIDIA's devices, as its runtime does" % UVM_DEVICE
            )
        yield "error", "cuda", "CUDA does not start: error %d, %s%s" % (code, match.group(2), cause)


def check_fabric_manager(root: str) -> Iterator[Finding]:
    """Yield a finding if NVSwitch is here, and its service does not run."""
    if not glob.glob(root + "/dev/nvidia-nvswitch[0-9]*"):
        return
    answer = run_program("systemctl", "is-active", "nvidia-fabricmanager")
    state = answer[1].strip() if answer else ""
    if state in ("inactive", "failed"):
        yield "warning", "gpus", "nvidia-fabricmanager is %s, and NVSwitch needs it: systemctl status" % state


def check_kernel_log(root: str) -> Iterator[Finding]:
    """Yield GPUs of which the kernel's log has an error that needs a reset or a repair."""
    errors: dict[tuple[str, str], None] = {}
    for age, message in kernel_messages(root):
        match = re.match(r"NVRM: Xid \(PCI:([\w:.]+)\): (\d+)", message)
        if match and match.group(2) in BAD_XIDS and age < XID_SECONDS:
            errors[match.group(1), match.group(2)] = None
    for address, number in list(errors)[:4]:
        yield "warning", "xid", "the kernel's log has Xid %s of GPU %s within a day" % (number, address)
