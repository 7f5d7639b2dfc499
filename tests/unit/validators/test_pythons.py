"""Which Python comes first on PATH, and what modules and preloaded libraries need, on images made of data."""

import pytest

from rdma_images.core.check import Check
from tests.incidents import run
from tests.incidents.case import base
from tests.incidents.image import ImageChange

Files = dict[str, object]

SYSTEM, CONDA, VENV = "/usr/bin", "/opt/conda/bin", "/opt/jobs/bin"
PYTHON = {"library": {"needed": ["libc.so.6"]}, "mode": "755"}
IN_CONDA = "/opt/conda/lib/python3.11/site-packages"
IN_VENV = "/opt/jobs/lib/python3.12/site-packages"
IN_SYSTEM = "/usr/local/lib/python3.12/dist-packages"


def wheel(folder: str, name: str) -> Files:
    """Return what pip leaves of a package."""
    return {f"{folder}/{name}-2.9.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.9.0\n\n"}


def of_system(*names: str) -> Files:
    return {f"{SYSTEM}/python3.12": PYTHON, **{f"{SYSTEM}/{name}": {"link": "python3.12"} for name in names}}


def of_venv(sees_system: bool) -> Files:
    config = f"home = /usr/bin\ninclude-system-site-packages = {str(sees_system).lower()}\n"
    links = {"python": "/usr/bin/python3.12", "python3": "python"}
    return {"/opt/jobs/pyvenv.cfg": config, **{f"{VENV}/{name}": {"link": to} for name, to in links.items()}}


BOTH = of_system("python", "python3")
OF_CONDA: Files = {
    f"{CONDA}/python3.11": PYTHON,
    f"{CONDA}/python3": {"link": "python3.11"},
    f"{CONDA}/python": {"link": "python3.11"},
}
TORCH_IN_CONDA = {**BOTH, **OF_CONDA, **wheel(IN_CONDA, "torch")}
VENV_OVER_SYSTEM = {**BOTH, **of_venv(True), **wheel(IN_SYSTEM, "torch")}


def run_check(check: str, files: Files, env: dict[str, str | None] | None = None, entry: tuple[str, ...] = ()) -> Check:
    """Return what a check makes of the base for EFA with these files."""
    image = base("efa").changed(ImageChange.model_validate({"files": files, "env": env or {}, "entrypoint": entry}))
    return run.run_checks({"image": image}, {"image": {check}})["image"][0]


def path_variable(*folders: str) -> dict[str, str | None]:
    return {"PATH": ":".join(folders)}


@pytest.mark.parametrize(
    ("files", "folders", "expected"),
    [
        (TORCH_IN_CONDA, (SYSTEM, CONDA), "PATH has /usr/bin before /opt/conda/bin, and python there is without torch"),
        (TORCH_IN_CONDA, (CONDA, SYSTEM), ""),
        (TORCH_IN_CONDA, (SYSTEM,), ""),
        ({**of_system("python3"), **OF_CONDA, **wheel(IN_CONDA, "torch")}, (SYSTEM, CONDA), ""),
        ({**TORCH_IN_CONDA, **wheel(IN_SYSTEM, "torch")}, (SYSTEM, CONDA), ""),
        ({**TORCH_IN_CONDA, "/opt/conda/pyvenv.cfg": "home = /usr/bin\n"}, (f"{SYSTEM}/", SYSTEM, CONDA), "/usr/bin"),
        ({**TORCH_IN_CONDA, "/shims/python": PYTHON}, ("/shims", SYSTEM, CONDA), ""),
        (
            {**VENV_OVER_SYSTEM, **wheel(IN_VENV, "nemo-run")},
            (SYSTEM, VENV),
            f"PATH has /usr/bin before /opt/jobs/bin, and python there is without the packages in {IN_VENV}",
        ),
        ({**VENV_OVER_SYSTEM, **wheel(IN_VENV, "nemo-run")}, (VENV, SYSTEM), ""),
        (VENV_OVER_SYSTEM, (SYSTEM, VENV), ""),
        ({**VENV_OVER_SYSTEM, f"{IN_VENV}/_virtualenv.py": "import os\n"}, (SYSTEM, VENV), ""),
        ({**VENV_OVER_SYSTEM, **wheel(IN_VENV, "pip"), **wheel(IN_VENV, "setuptools")}, (SYSTEM, VENV), ""),
        (
            {
                **of_system("python3"),
                **of_venv(True),
                **wheel(IN_SYSTEM, "torch"),
                **wheel(IN_VENV, "nemo-run"),
                "/opt/other/bin/python": PYTHON,
            },
            ("/opt/other/bin", SYSTEM, VENV),
            "PATH has /usr/bin before /opt/jobs/bin",
        ),
        ({**BOTH, **OF_CONDA}, (SYSTEM, CONDA), ""),
        ({**BOTH, **of_venv(False), **wheel(IN_SYSTEM, "torch"), **wheel(IN_VENV, "awscli")}, (SYSTEM, VENV), ""),
        ({**BOTH, **of_venv(False), **wheel(IN_SYSTEM, "torch"), **wheel(IN_VENV, "torch")}, (SYSTEM, VENV), ""),
        ({**BOTH, **of_venv(False), **wheel(IN_VENV, "torch")}, (SYSTEM, VENV), "without torch"),
    ],
)
def test_the_python_with_torch_comes_first(files: Files, folders: tuple[str, ...], expected: str) -> None:
    check = run_check("environment.path", files, path_variable(*folders))
    assert check.outcome == ("failed" if expected else "passed")
    assert expected in check.actual
    assert not expected or "first in PATH" in check.fix


@pytest.mark.parametrize(
    ("files", "entry", "reported"),
    [
        ({}, ("/bin/bash",), True),
        ({}, ("bash", "-lc", "source /opt/conda/bin/activate && exec bash"), False),
        ({}, ("conda", "run", "-n", "base", "python", "train.py"), False),
        ({}, ("entrypoint.sh",), False),
        ({"/start.sh": "#!/bin/sh\nexport PATH=/opt/conda/bin:$PATH\nexec $@\n"}, ("/start.sh",), False),
        ({"/start.sh": "#!/bin/sh\nexec $@\n"}, ("/start.sh",), True),
        ({"/root/.bashrc": "conda activate base\n"}, ("/bin/bash",), False),
        ({"/etc/environment": 'PATH="/usr/sbin:/usr/bin"\n'}, ("/bin/bash",), True),
    ],
)
def test_what_activates_an_environment_chooses_its_python(files: Files, entry: tuple[str, ...], reported: bool) -> None:
    check = run_check("environment.path", {**TORCH_IN_CONDA, **files}, path_variable(SYSTEM, CONDA), entry)
    assert (check.outcome == "failed") is reported


@pytest.mark.parametrize(("folder", "reported"), [("/opt/amazon/openmpi/bin/", False), ("/opt/hpcx/ompi/bin", True)])
def test_a_slash_at_the_end_is_the_same_folder(folder: str, reported: bool) -> None:
    check = run_check("environment.path", {}, {**path_variable(folder, SYSTEM), "OPAL_PREFIX": "/opt/amazon/openmpi"})
    assert (check.outcome == "failed") is reported


def module(*needed: str, **more: str) -> dict[str, object]:
    return {"library": {"needed": [*needed, "libc.so.6"], **more}}


TWO_TORCHES = {
    "_C": module("libtorch_cuda.so"),
    "_more_C": module("libtorch_cuda.so", "libfast.so.1"),
}
FLASH = f"{IN_SYSTEM}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"
ASKS = module("libc10.so", "libtorch_cuda.so", "libcudart.so.12")
RUNTIME = {"library": {"soname": "libcudart.so.12", "needed": ["libc.so.6"]}}
OF_TORCH = {
    f"{IN_SYSTEM}/torch/lib/libtorch_cuda.so": module("libcudart.so.12", rpath="/opt/runtime"),
    "/opt/runtime/libcudart.so.12": RUNTIME,
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({FLASH: ASKS}, f"{FLASH} cannot be loaded: it finds no libcudart.so.12"),
        (
            {f"{IN_SYSTEM}/deep_ep_cpp.so": ASKS},
            f"{IN_SYSTEM}/deep_ep_cpp.so cannot be loaded: it finds no libcudart.so.12",
        ),
        ({FLASH: module("libtorch_cuda.so", "libnuma.so.1")}, f"{FLASH} cannot be loaded: it finds no libnuma.so.1"),
        (
            {FLASH: module("libtorch_cuda.so", "libnuma.so.1"), f"{IN_SYSTEM}/other.libs/libnuma.so.1": module()},
            "",
        ),
        ({f"{IN_SYSTEM}/saver/{name}.abi3.so": needs for name, needs in TWO_TORCHES.items()}, ""),
        ({f"{IN_SYSTEM}/av/_av{n}.abi3.so": module("libtorch.so", f"libavutil.so.{50 + n}") for n in (6, 7)}, ""),
        ({f"{IN_SYSTEM}/tf/_C.abi3.so": module("libtensorflow_cc.so.2", "libmpi.so.40")}, ""),
        ({FLASH: ASKS, **OF_TORCH}, ""),
        ({FLASH: ASKS, "/usr/lib/x86_64-linux-gnu/libcudart.so.12": RUNTIME}, ""),
        ({FLASH: ASKS, f"{IN_SYSTEM}/nvidia/cuda_runtime/lib/libcudart.so.12": RUNTIME}, ""),
        ({f"{IN_CONDA}/flash_attn_2_cuda.so": ASKS, "/opt/conda/lib/libcudart.so.12": RUNTIME}, ""),
        ({f"{IN_CONDA}/flash_attn_2_cuda.so": ASKS, "/opt/other/lib/libcudart.so.12": RUNTIME}, "libcudart.so.12"),
        ({f"{IN_SYSTEM}/saver/hook_cu{n}_C.abi3.so": module(f"libcudart.so.{n}") for n in (12, 13)}, "cu12_C"),
        (
            {
                **{f"{IN_SYSTEM}/saver/hook_cu{n}_C.abi3.so": module(f"libcudart.so.{n}") for n in (12, 13)},
                "/usr/lib/x86_64-linux-gnu/libcudart.so.12": RUNTIME,
            },
            "",
        ),
        ({f"{IN_SYSTEM}/torch/_C.cpython-312-x86_64-linux-gnu.so": ASKS}, ""),
        ({f"{IN_SYSTEM}/scipy/fft_C.abi3.so": module("libcudnn.so.9")}, ""),
    ],
)
def test_what_modules_for_cuda_need_is_there(files: Files, expected: str) -> None:
    check = run_check("transports.load", files)
    assert (check.outcome == "failed") is bool(expected)
    assert expected in check.actual
    assert not expected or "deep_ep" in expected or "for CUDA 12.8" in check.fix


HOOK = "/opt/hook/libhook.so"


@pytest.mark.parametrize(
    ("files", "env", "expected"),
    [
        ({HOOK: ASKS}, {"LD_PRELOAD": HOOK}, f"LD_PRELOAD={HOOK} needs"),
        ({HOOK: module("libcudart.so.12")}, {"LD_PRELOAD": HOOK}, "needs libcudart.so.12, not there"),
        ({HOOK: module("libcudart.so.12")}, {"LD_PRELOAD": "libhook.so", "LD_LIBRARY_PATH": "/opt/hook"}, "needs"),
        ({HOOK: module("libcudart.so.12"), "/usr/lib/libcudart.so.12": RUNTIME}, {"LD_PRELOAD": HOOK}, ""),
        ({HOOK: module("libcuda.so.1")}, {"LD_PRELOAD": HOOK}, ""),
        (
            {HOOK: module("libgone.so"), "/etc/ld.so.preload": f"# why\n{HOOK}\n"},
            {},
            f"/etc/ld.so.preload names {HOOK}",
        ),
        ({HOOK: module("libgone.so"), "/etc/ld.so.preload": f"#{HOOK}\n"}, {}, ""),
        ({HOOK: module("libgone.so"), "/etc/profile.d/x.sh": f"export LD_PRELOAD={HOOK}\n"}, {}, ""),
    ],
)
def test_what_a_preloaded_library_needs_is_there(files: Files, env: dict[str, str | None], expected: str) -> None:
    check = run_check("environment.files", files, env)
    assert (check.outcome == "failed") is bool(expected)
    assert expected in check.actual
    assert not expected or "no program starts" in check.actual
    assert not expected or "preload the build" in check.fix


OLDER = {
    "library": {
        "soname": "libnccl.so.2",
        "needed": ["libc.so.6"],
        "exports": ["ncclAllReduce"],
        "words": ["NCCL version 2.19.3+cuda12.3", "libnccl-net.so"],
    }
}
WHEEL = "/opt/venv/lib/python3.12/site-packages"
CALLS = {
    f"{WHEEL}/torch/lib/libtorch_cuda.so": {
        "library": {
            "soname": "libtorch_cuda.so",
            "needed": ["libnccl.so.2", "libc.so.6"],
            "undefined": ["ncclAllReduce", "ncclDevCommDestroy"],
            "rpath": "$ORIGIN/../../nvidia/nccl/lib",
        }
    },
    f"{WHEEL}/nvidia/nccl/lib/libnccl.so.2": {
        "library": {**OLDER["library"], "exports": ["ncclAllReduce", "ncclDevCommDestroy"]}
    },
}


@pytest.mark.parametrize(
    ("files", "env", "expected", "fix"),
    [
        (CALLS, {}, "", ""),
        (
            {**CALLS, "/opt/nccl/libnccl.so": OLDER},
            {"LD_PRELOAD": "/opt/nccl/libnccl.so"},
            "ncclDevCommDestroy",
            "take /opt/nccl/libnccl.so out of LD_PRELOAD",
        ),
        ({**CALLS, "/opt/nccl/libnccl.so.2": OLDER}, {"LD_LIBRARY_PATH": "/opt/nccl"}, "", ""),
        ({**CALLS, f"{WHEEL}/nvidia/nccl/lib/libnccl.so.2": OLDER}, {}, "ncclDevCommDestroy", "install the wheels"),
    ],
)
def test_torch_gets_an_nccl_that_has_what_it_calls(
    files: Files, env: dict[str, str | None], expected: str, fix: str
) -> None:
    check = run_check("torch.closure", files, env)
    assert (check.outcome == "failed") is bool(expected)
    assert expected in check.actual.partition("\n")[0]
    assert fix in check.fix
    assert not fix.startswith("take") or "NCCL 2.19.3 at /opt/nccl/libnccl.so does not have" in check.actual


def test_many_symbols_are_counted() -> None:
    calls = {
        "needed": ["libnccl.so.2"],
        "undefined": [f"ncclCall{n}" for n in range(6)],
        "rpath": "$ORIGIN/../../nvidia/nccl/lib",
    }
    check = run_check("torch.closure", {**CALLS, f"{WHEEL}/torch/lib/libtorch_cuda.so": {"library": calls}})
    assert check.actual.startswith("torch calls ncclCall0 and 5 others, which NCCL ")


def test_a_symbol_that_two_libraries_call_is_counted_once() -> None:
    calls: dict[str, object] = {"needed": ["libnccl.so.2"], "undefined": ["ncclCall0", "ncclCall1"]}
    calls["rpath"] = "$ORIGIN/../../nvidia/nccl/lib"
    files = {f"{WHEEL}/torch/lib/{name}": {"library": calls} for name in ("libtorch_cuda.so", "libtorch_python.so")}
    assert run_check("torch.closure", {**CALLS, **files}).actual.startswith(
        "torch calls ncclCall0 and ncclCall1, which "
    )
