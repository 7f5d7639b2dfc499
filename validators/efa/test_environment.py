"""Programs that override the image's variables in a job of SageMaker."""

from rdma_images.inspection.inspection import Inspection
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.applies import is_image
from validators.support.tool_runs import NO_PACKAGES, TOOLKIT, toolkits

TOOLKIT_SOURCE = (
    "aws/sagemaker-training-toolkit @3383937 torch_distributed.py: NCCL_PROTO=simple and NCCL_SOCKET_IFNAME for every "
    "job, RDMAV_FORK_SAFE=1 and FI_EFA_USE_DEVICE_RDMA=1 on some instance types; mpi.py: NCCL_ALGO=ring"
)


@validator("sagemaker.toolkit", source=TOOLKIT_SOURCE, severity="warning", when=is_image)
def test_toolkit(inspection: Inspection, require: Requirement) -> None:
    """SageMaker's training toolkit, which sets variables after the image's own, is not installed."""
    packages = inspection.measured.packages or skip(inspection.measured.missing.get("packages", NO_PACKAGES))
    lines = toolkits(packages)
    require(
        not lines,
        expected="none: when a job starts, it sets NCCL_PROTO, which switches the plugin's tuner off, and others",
        actual=f"{', '.join(lines)}: it sets NCCL_PROTO as a job starts, and the plugin's tuner is off"
        if lines
        else "none",
        fix=f"leave {TOOLKIT} out, and start jobs with the `train` of the target sagemaker-efa-pytorch",
    )
