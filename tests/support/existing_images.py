"""Images that exist, as they would be measured."""

from dataclasses import replace
from typing import Any

from rdma_images import facts
from rdma_images.core import yaml_file
from rdma_images.core.image import ExistingImage, Image
from rdma_images.plan import planner
from rdma_images.plan.matrix import Matrix
from rdma_images.plan.refusals import Plan

DIGEST = "sha256:" + "1f" * 32
REF = f"team/training@{DIGEST}"
TEXT = """
targets:
  mine:
    summary: a team's own image
    fabric: {fabric}
    onto: {ref}
    default: {default}
"""
EFA = "{efa-installer: 1.50.0}"
CONDA = ExistingImage(
    ref=REF,
    suite="sha256:0",
    platform="linux/amd64",
    system="debian13",
    python="3.12.11",
    pytorch="2.15.0",
    cuda="13.2",
    nccl="2.30.7",
    fabric="",
    installer="",
    verbs="",
    verbs_package="",
    plugins=(),
    loader_folders=(),
    cuda_runtime="/opt/conda/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13",
    environment={"PATH": "/opt/conda/bin:/usr/local/bin:/usr/bin:/bin", "NVIDIA_VISIBLE_DEVICES": "all"},
    user="",
    workdir="/workspace",
    entrypoint=(),
    shell=(),
    layers=("sha256:a", "sha256:b"),
    failed={},
    python_path="/opt/conda/bin/python3",
    python_packages={"numpy": "2.3.0", "nvidia-nccl-cu13": "2.30.7", "torch": "2.15.0+cu132"},
    nccl_path="/opt/conda/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
)


def existing(**changes: Any) -> ExistingImage:
    """Return an image in the shape of pytorch/pytorch, with changes."""
    return replace(CONDA, **changes)


def ngc() -> ExistingImage:
    """Return an image like NGC's: HPC-X's plugin first, CUDA's toolkit, an entry point."""
    folder = "/opt/hpcx/nccl_rdma_sharp_plugin/lib"
    return existing(
        system="ubuntu24.04",
        verbs="/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.50.0",
        verbs_package="50.0-2build2",
        plugins=(f"{folder}/libnccl-net.so.0.0.0", "/usr/lib/x86_64-linux-gnu/libnccl-net.so"),
        loader_folders=(folder, "/usr/lib/x86_64-linux-gnu"),
        cuda_runtime="/usr/local/cuda/lib64/libcudart.so.13",
        environment={
            "PATH": "/usr/local/cuda/bin:/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{folder}:/usr/local/cuda/lib64",
            "NCCL_NET_PLUGIN": "libnccl-net.so",
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility,video",
        },
        entrypoint=("/opt/nvidia/nvidia_entrypoint.sh",),
        shell=("/bin/bash", "-c"),
    )


def read_matrix(fabric: str = "efa", ref: str = REF, default: str = EFA, more: str = "") -> Matrix:
    """Return a matrix whose one target, `mine`, is added to an image; `more` are lines of that target."""
    return yaml_file.loads(TEXT.format(fabric=fabric, ref=ref, default=default) + more, Matrix, "matrix.yaml")


def plan_onto(
    base: ExistingImage = CONDA, fabric: str = "efa", default: str = "", more: str = "", **changes: str
) -> Plan:
    """Return the plan that adds a fabric to `base`, with changes of axes."""
    read = read_matrix(fabric, base.ref, default or (EFA if fabric == "efa" else "{}"), more)
    by_axis = {axis.replace("_", "-"): value for axis, value in changes.items()}
    return planner.plan(read, facts.load(), ["mine"], changes=by_axis, measure_base=lambda _: base)


def planned_onto(base: ExistingImage = CONDA, **options: str) -> Image:
    """Return the image of `plan_onto`."""
    (image,) = plan_onto(base, **options).images
    return image
