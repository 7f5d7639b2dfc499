"""Single checks of the real case, changed in one place: what decides them, and what does not."""

from typing import Any

import pytest

from rdma_images.validate import suite
from tests.support.changed_case import Changes, changed, check_outcome

S = "/opt/venv/site-packages"
LIB, TOOLKIT = "/usr/lib/x86_64-linux-gnu", "/usr/local/cuda-13.2/lib64"
NCCL, TORCH = f"{S}/nvidia/nccl/lib/libnccl.so.2", "/opt/venv/lib/python3.13/site-packages/torch/lib/libtorch_cuda.so"
FILE, LACKS = {"size": 1, "target": ""}, {"missing": ["libgone.so.9"]}
LARGE = {"size": 2 << 20, "target": ""}
NO_TORCH = {"torch": None, "missing": {"torch": "it crashed"}}
NOT_STARTED = {"torch": None, "missing": dict.fromkeys(("torch", "tools"), "nothing can be started")}
JITLINK = "/usr/local/cuda-12.1/lib64/libnvJitLink.so.12"
NO_SYMBOL = "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12"
OLD_JITLINK = {"torch": None, "missing": {"torch": NO_SYMBOL}}
ELSEWHERE = {"platform": "linux/riscv64"}
TOOL = {"path": "/usr/bin/ibv_devinfo", "exit_code": 0, "stdout": "", "stderr": "", "timed_out": False, "seconds": 0.0}
THE_SAME = {"libibverbs.so.1": f"{LIB}/libibverbs.so.1.14.56.1"}
DEVICES: dict[str, Any] = {
    "instance": "", "vendor": "", "nodes": [], "rdma": {}, "efa_domains": [], "memlock": None, "compat_mode": "",
    "huge_pages": {"total": 0, "free": 0, "bytes": 2097152}, "modules": [], "nvidia_module": "",
    "tools": {"fi_info -p efa": TOOL, "ibv_devinfo": TOOL},
}  # fmt: skip
NONE = "Failed to get IB devices list: Function not implemented"
REHEARSAL = "io.rdma-images.rehearsal"


def settings(*assigned: tuple[str, str, str], absent: Any = (), without_path: Any = ()) -> Changes:
    """Return what files set: (name, value, reader)."""
    lines = [
        {"file": "/etc/a", "line": 1, "name": name, "value": value, "reader": reader}
        for name, value, reader in assigned
    ]
    return {"settings": {"assigned": lines, "absent": list(absent), "without_path": dict(without_path)}}


def missing_file(variable: str) -> dict[str, Changes]:
    return {"measured": settings(absent=["/etc/x"]), "environment": {variable: "/etc/x"}}


LAYER = {"digest": "sha256:1", "bytes": 1, "unpacked": 1, "file_count": 1, "largest_folder": "/", "leftovers": {}}
CASES: list[tuple[str, dict[str, Changes], str]] = [
    ("cuda.driver", {"files": {f"{LIB}/libnvidia-ml.so.580.65": LARGE}}, "failed"),
    (
        "cuda.driver",
        {"files": {f"{LIB}/libnvidia-ml.so.580.65": LARGE}, "measured": {"devices": DEVICES}},
        "passed",
    ),  # mounted by a runtime
    (
        "layers.secrets",
        {"measured": {"layers": [{**LAYER, "leftovers": {"secret": {"/a": "a key"}}}]}},
        "failed: everybody who pulls the image can read /a (a key, layer 1)",
    ),
    ("layers.secrets", {"measured": {"layers": [LAYER]}}, "passed"),
    ("layers.secrets", {"measured": {"layers": None, "failed": ["layers"]}}, "skipped"),
    ("cuda.stub", {"resolved": {"libcuda.so.1": {"file": "/usr/local/cuda/stubs/libcuda.so.1"}}}, "failed"),
    ("cuda.stub", {"resolved": {"libcuda.so.1": {"file": f"{LIB}/libcuda.so.1"}}}, "passed"),
    (
        "cuda.stub",
        {"resolved": {"libcuda.so.1": {"file": f"{LIB}/libcuda.so.1"}}, "files": {f"{LIB}/libcuda.so.1": FILE}},
        "failed",
    ),
    ("label.pytorch", {"measured": NO_TORCH}, "skipped: it crashed"),
    ("label.pytorch", {"measured": {"torch": None, "missing": {"torch": "the image has no torch"}}}, "failed"),
    ("label.libfabric", {"labels": {REHEARSAL: None}}, "failed: the label io.rdma-images"),
    ("label.libfabric", {"labels": {REHEARSAL: None}, "measured": {"tools": None}}, "skipped: fi_info did not"),
    ("label.rdma-core", {"labels": {REHEARSAL: None}, "dpkg": {"libibverbs1": "64.0-1"}}, "passed"),
    ("label.rdma-core", {"labels": {REHEARSAL: None}, "dpkg": {"libibverbs1": None}}, "skipped: no package manager"),
    ("measured.complete", {"measured": {"failed": ["packages"]}}, "failed: packages: no reason is known"),
    (
        "measured.complete",
        {"measured": {"failed": ["packages"]}, "environment": {"PYTHONHOME": "/x", "PYTHONPATH": "", "HOME": "/y"}},
        "failed: packages: no reason is known (PYTHONHOME=/x is set)",
    ),
    ("measured.complete", {"measured": {**NO_TORCH, "failed": ["torch"]}}, "passed"),
    ("measured.complete", {"measured": {**NO_TORCH, "failed": ["torch"]}, "wheels": {"torch": None}}, "failed: torch:"),
    ("measured.complete", {"measured": {**NO_TORCH, "failed": ["torch"], "packages": None}}, "failed: torch: it"),
    ("nccl.loaded", {"torch": {"nccl": []}}, "failed: no libnccl is mapped"),
    ("nccl.version", {"torch": {"nccl": [{"path": NCCL, "version": "2.29.7"}]}}, f"failed: {NCCL} is NCCL 2.29.7"),
    ("nccl.version", {"torch": {"nccl": [{"path": "/opt/libnccl.so.2", "version": "2.29.7"}]}}, "passed"),
    ("nccl.compiled", {"torch": {"compiled_nccl": "1.9.0"}}, "failed: NCCL 2.30.7 is in use, and torch"),
    ("nccl.cuda", {"nccl": {NCCL: {"banner": "2.30.7"}}}, f"skipped: {NCCL} does not say its CUDA"),
    ("nccl.matrix", {"planned": {"nccl": "2.30.7"}}, "passed"),
    ("nccl.matrix", {"planned": {"nccl": "2.31.2"}}, "failed: NCCL 2.30.7 is in use"),
    ("plugin.found", {"environment": {"NCCL_NET_PLUGIN": "libgone.so"}}, "failed: NCCL_NET_PLUGIN=libgone.so: NCCL"),
    ("plugin.found", {"environment": {"NCCL_NET_PLUGIN": "gone"}}, "failed: NCCL_NET_PLUGIN=gone: NCCL finds no lib"),
    (
        "plugin.found",
        {"environment": {"NCCL_NET_PLUGIN": "none"}, "nccl": {NCCL: {"banner": "2.27.7+cuda12.9"}}},
        "failed: NCCL_NET_PLUGIN=none: NCCL finds no libnccl-net-none.so",
    ),
    ("torch.imports", {"measured": NO_TORCH}, "failed: import torch fails: it crashed"),
    ("torch.imports", {"measured": NO_TORCH, "wheels": {"torch": None}}, "skipped: the image has no torch"),
    ("torch.imports", {"measured": NOT_STARTED}, "failed: import torch fails: nothing can be started"),
    (
        "torch.imports",
        {"subject": ELSEWHERE, "measured": NOT_STARTED},
        "skipped: nothing can be started, on a machine of another architecture",
    ),
    ("torch.imports", {"subject": ELSEWHERE, "measured": NO_TORCH}, "failed: import torch fails: it"),  # in an emulator
    (
        "torch.imports",
        {"measured": OLD_JITLINK, "closures": {TORCH: {"libraries": {"libnvJitLink.so.12": JITLINK}}}},
        f"failed: import torch fails: {JITLINK} comes before the one of torch's wheels, and is of another release: Imp",
    ),
    ("torch.imports", {"measured": NO_TORCH, "closures": {TORCH: LACKS}}, "skipped: libraries that torch needs"),
    ("torch.imports", {"measured": NO_TORCH, "closures": {NCCL: LACKS}}, "skipped: NCCL is missing or lacks"),
    ("torch.imports", {"closures": {TORCH: LACKS}}, "passed"),
    ("torch.imports", {"closures": {NCCL: LACKS}}, "passed"),
    ("verbs.ibv-devinfo", {"tools": {"ibv_devinfo": {"exit_code": 0, "stderr": ""}}}, "passed"),
    ("verbs.ibv-devinfo", {"tools": {"ibv_devinfo": {"exit_code": 1, "stderr": NONE}}}, "failed"),
    ("verbs.ibv-devinfo", {"tools": {"ibv_devinfo": {"exit_code": 255, "stderr": "Bad address"}}}, "failed"),
    (
        "environment.files",
        {"measured": settings(("NCCL_TOPO_FILE", "/opt/there.xml", "shell"), absent=["/opt/gone"])},
        "passed",
    ),
    (
        "environment.files",
        {"measured": settings(("NCCL_TOPO_FILE", "/opt/gone.xml", "shell"), absent=["/opt/gone.xml"])},
        "failed: /etc/a:1: NCCL_TOPO_FILE=/opt/gone.xml is not there",
    ),
    ("environment.slow", {"environment": {"NCCL_TOPO_FILE": "/etc/x"}}, "failed: NCCL_TOPO_FILE=/etc/x"),
    ("environment.slow", missing_file("NCCL_TOPO_FILE"), "passed"),  # environment.files reports it
]  # fmt: skip


@pytest.mark.parametrize(("check", "changes", "outcome"), CASES, ids=[check for check, _, _ in CASES])
def test_what_decides_a_check(check: str, changes: dict[str, Changes], outcome: str) -> None:
    assert check_outcome(check, **changes).startswith(outcome)


def test_a_torch_without_nccl_is_an_error_in_an_image_for_no_fabric() -> None:
    inspection = changed(measured=NO_TORCH, nccl={NCCL: None}, closures={NCCL: LACKS})
    for_none = inspection.model_copy(update={"expected": inspection.expected.model_copy(update={"fabric": None})})
    (finding,) = suite.run(for_none, only={"torch.imports"})
    assert (finding.outcome, finding.severity) == ("failed", "error")


@pytest.mark.parametrize(
    ("check", "changes", "severity"),
    [
        ("environment.files", missing_file("NCCL_TOPO_FILE"), "warning"),
        ("environment.files", missing_file("NCCL_GRAPH_FILE"), "error"),
        ("nccl.version", {"wheels": {"nvidia-nccl-cu13": "2.18.3"}}, "error"),
    ],
)
def test_what_a_finding_is(check: str, changes: dict[str, Changes], severity: str) -> None:
    (finding,) = suite.run(changed(**changes), only={check})
    assert (finding.outcome, finding.severity) == ("failed", severity)
