"""What opens a network beside NCCL, in images as the packages' own wheels make them."""

from typing import Any

import pytest

from rdma_images.core.check import Check
from tests.incidents import run
from tests.incidents.case import base
from tests.incidents.image import ImageChange
from validators.support import in_use

SITE = "/opt/venv/lib/python3.12/site-packages"
# nixl-cu13 1.5.1 from the package index: its Python module loads what lies in .libs before it opens the plugins.
NIXL = {
    f"{SITE}/nixl_cu13-1.5.1.dist-info/METADATA": {
        "text": "Metadata-Version: 2.4\nName: nixl-cu13\nVersion: 1.5.1\n\n"
    },
    f"{SITE}/.nixl_cu13.mesonpy.libs/libnixl_common.so": {"library": {"soname": "libnixl_common.so"}},
    f"{SITE}/.nixl_cu13.mesonpy.libs/libserdes.so": {"library": {"soname": "libserdes.so"}},
    f"{SITE}/nvidia/cu13/lib/libcudart.so.13": {"library": {"soname": "libcudart.so.13"}},
    f"{SITE}/nixl_cu13.libs/nixl/libplugin_LIBFABRIC.so": {
        "library": {
            "soname": "libplugin_LIBFABRIC.so",
            "needed": ["libnixl_common.so", "libserdes.so", "libfabric.so.1", "libcudart.so.13"],
            "runpath": "$ORIGIN/..:$ORIGIN",
            "exports": ["nixl_plugin_init"],
        }
    },
    f"{SITE}/nixl_cu13.libs/ucx/libuct_ib_mlx5_gdp.so.0.0.0": {
        "library": {"soname": "libuct_ib_mlx5_gdp.so.0", "needed": ["libflexio.so"]}
    },
}


def check_of(check_id: str, image: str, files: dict[str, Any]) -> Check:
    """Return what a check says of an image with these files."""
    changed = base(image).changed(ImageChange.model_validate({"files": files}))
    (check,) = [result for result in run.run_checks({"image": changed})["image"] if result.id == check_id]
    return check


@pytest.mark.parametrize(
    ("without", "lacking"), [("", ""), (f"{SITE}/nvidia/cu13/lib/libcudart.so.13", "it finds no libcudart.so.13")]
)
def test_nixl_finds_what_python_has_loaded_before(without: str, lacking: str) -> None:
    files = {path: file for path, file in NIXL.items() if path != without}
    check = check_of("transports.load", "efa", files)
    assert check.outcome == ("failed" if lacking else "passed")
    assert lacking in check.actual


def test_the_module_of_ucx_for_doca_is_not_missed() -> None:
    module = {"soname": "libuct_ib_mlx5_gdp.so.0", "needed": ["libflexio.so", "libgone.so"]}
    files = {f"{SITE}/nixl_cu13.libs/ucx/libuct_ib_mlx5_gdp.so.0.0.0": {"library": module}}
    assert check_of("transports.load", "cuda-torch-ib", files).actual.endswith("it finds no libgone.so")


@pytest.mark.parametrize(("image", "severity"), [("cuda-torch-ib", "note"), ("efa", "warning")])
def test_nixls_plugin_for_efa_is_missed_there(image: str, severity: str) -> None:
    files = {path: file for path, file in NIXL.items() if "cudart" not in path}
    check = check_of("transports.load", image, files)
    assert (check.outcome, check.severity) == ("failed", severity)


CUPY_NCCL = {
    f"{SITE}/cupy_backends/cuda/libs/nccl.cpython-312-x86_64-linux-gnu.so": {"library": {"needed": ["libnccl.so.2"]}}
}
NCCL_ELSEWHERE = {"/opt/nccl/lib/libnccl.so.2": {"library": {"soname": "libnccl.so.2", "exports": ["ncclGetVersion"]}}}


@pytest.mark.parametrize(("nccl", "severity"), [({}, "note"), (NCCL_ELSEWHERE, "warning")])
def test_cupy_works_without_nccl_on_one_gpu(nccl: dict[str, Any], severity: str) -> None:
    check = check_of("transports.load", "rpm", {**CUPY_NCCL, **nccl})
    assert "libnccl.so.2" in check.actual
    assert (check.outcome, check.severity) == ("failed", severity)


def test_of_the_wheels_for_two_cuda_one_has_to_load() -> None:
    plugins = [path for path in NIXL if "/libplugin_" in path]
    other = {path.replace("cu13", "cu12"): {"library": {"needed": ["libcudart.so.12"]}} for path in plugins}
    assert check_of("transports.load", "efa", {**NIXL, **other}).outcome == "passed"


def words_of_failures(check: str, files: dict[str, Any]) -> str:
    """Return what a check finds in the base image for EFA with these files; "" where it finds nothing."""
    failed = check_of(check, "efa", files)
    return failed.actual if failed.outcome == "failed" else ""


UCT = {"library": {"soname": "libuct.so.0"}}
VERBS = {"library": {"soname": "libuct_ib.so.0", "needed": ["libibverbs.so.1"]}}


@pytest.mark.parametrize(
    ("files", "actual"),
    [
        ({"/opt/ucx/lib/libuct.so.0": UCT}, "UCX at /opt/ucx/lib/libuct.so.0 has no libuct_ib.so beside it"),
        ({"/opt/ucx/lib/libuct.so.0": UCT, "/opt/ucx/lib/ucx/libuct_ib.so.0": VERBS}, ""),
        (
            {
                **{"/opt/hpcx/ucx/lib/libuct.so.0": UCT, "/opt/hpcx/ucx/lib/ucx/libuct_ib.so.0": VERBS},
                "/usr/local/ucx/lib/libuct.so.0": UCT,
            },
            "UCX at /usr/local/ucx/lib/libuct.so.0 has no libuct_ib.so beside it",
        ),
    ],
)
def test_each_ucx_has_its_module_for_verbs(files: dict[str, Any], actual: str) -> None:
    check = check_of("transports.backends", "cuda-torch-ib", files)
    assert check.actual.startswith(actual)
    assert check.outcome == ("failed" if actual else "passed")


def test_torch_that_has_its_cuda_code_in_caffe2() -> None:
    library = {"soname": "libcaffe2_gpu.so", "needed": ["libnccl.so.1"]}
    check = check_of("torch.closure", "plain", {f"{SITE}/torch/lib/libcaffe2_gpu.so": {"library": library}})
    assert check.actual == "torch cannot be imported: it finds no libnccl.so.1 (the image has libnccl.so.2)"


def test_what_horovod_gets_from_its_framework() -> None:
    needed = ["libmpi.so.40", "libtensorflow_framework.so.2"]
    module = {"library": {"needed": needed}}
    site = {
        f"{SITE}/horovod/{framework}/mpi_lib.cpython-312-x86_64-linux-gnu.so": module
        for framework in ("tensorflow", "torch")
    }
    assert words_of_failures("transports.load", site) == (
        f"{SITE}/horovod/torch/mpi_lib.cpython-312-x86_64-linux-gnu.so cannot be loaded: it finds no libmpi.so.40"
    )


def test_a_build_without_the_module_does_not_have_its_fault() -> None:
    metadata = {
        f"{SITE}/uccl-0.1.1.dist-info/METADATA": {"text": "Metadata-Version: 2.1\nName: uccl\nVersion: 0.1.1\n"}
    }
    p2p = {f"{SITE}/uccl/p2p.cpython-312-x86_64-linux-gnu.so": {"library": {"needed": ["libibverbs.so.1"]}}}
    ep = {f"{SITE}/uccl/ep.cpython-312-x86_64-linux-gnu.so": {"library": {"needed": ["libibverbs.so.1"]}}}
    assert words_of_failures("packages.broken", {**metadata, **p2p}) == ""
    assert "built without EFA" in words_of_failures("packages.broken", {**metadata, **ep})


@pytest.mark.parametrize(
    ("faults", "remaining"),
    [
        ({"nixl_ep/cpp_torch211.so": "no", "nixl_ep/cpp_torch212.so": ""}, []),
        ({"nixl_ep/cpp_torch211.so": "no", "nixl_ep/cpp_torch212.so": "no"}, []),
        ({"nixl_ep/cpp_torch29.so": "no", "nixl_ep/cpp_torch212.so": "no"}, ["nixl_ep/cpp_torch29.so"]),
        ({"sgl/sm90/ops.so": "no", "sgl/sm100/ops.so": ""}, []),
        ({"sgl/sm90/ops.so": "no", "sgl/sm100/ops.so": "no"}, ["sgl/sm90/ops.so", "sgl/sm100/ops.so"]),
        ({"flash_attn/ops.so": "no", "vllm/ops.so": ""}, ["flash_attn/ops.so"]),
        ({"bnb/libbnb_cuda120_nocublaslt.so": "no", "bnb/libbnb_cuda117.so": ""}, []),
    ],
)
def test_of_modules_for_several_versions_one_has_to_load(faults: dict[str, str], remaining: list[str]) -> None:
    assert [path for path, fault in in_use.without_alternatives(faults, "2.9.1").items() if fault] == remaining


def test_a_module_that_ends_an_import_comes_before_a_part_that_is_passed_over() -> None:
    """mpi4py for MPICH beside Open MPI, whose wheel has UCX with a module for InfiniBand."""
    module = f"{SITE}/mpi4py/MPI.cpython-312-x86_64-linux-gnu.so"
    files = {
        module: {"library": {"needed": ["libmpi.so.12"]}},
        "/opt/venv/lib/libmpi.so.40": {"library": {"soname": "libmpi.so.40"}},
        "/opt/venv/lib/openmpi/ucx/libuct_ib.so.0": {"library": {"needed": ["libibverbs.so.1"]}},
    }
    words = words_of_failures("transports.load", files)
    assert words.startswith(f"{module} cannot be loaded: it finds no libmpi.so.12 (the image has libmpi.so.40)")
