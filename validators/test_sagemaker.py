"""Validators of an image for SageMaker: it trains as SageMaker starts it, in its own environment."""

import pytest

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import MeasuredPackages
from rdma_images.validate.probes.tools import TRAIN
from rdma_images.validate.pytest_plugin import Requirement
from validators.toolruns import summary

TOOLKIT = "sagemaker-training"
NO_PACKAGES = "no packages were read"
TRAIN_SOURCE = (
    "Amazon SageMaker's developer guide, How Amazon SageMaker runs your training image: the command is `train`"
)
TOOLKIT_SOURCE = (
    "aws/sagemaker-training-toolkit @3383937 torch_distributed.py: NCCL_PROTO=simple and NCCL_SOCKET_IFNAME for every "
    "job, RDMAV_FORK_SAFE=1 and FI_EFA_USE_DEVICE_RDMA=1 on some instance types; mpi.py: NCCL_ALGO=ring"
)


def toolkits(packages: MeasuredPackages) -> list[str]:
    """Return each installed toolkit: version and folder."""
    return [
        f"{TOOLKIT} {versions[TOOLKIT]} in {folder}"
        for folder, versions in packages.wheels.items()
        if TOOLKIT in versions
    ]


@pytest.mark.validator("sagemaker.train", source=TRAIN_SOURCE)
def test_train(inspection: Inspection, require: Requirement) -> None:
    """The command that SageMaker starts can be started."""
    if not (inspection.expected.target or inspection.subject.label("target") or "").startswith("sagemaker-"):
        pytest.skip("the image is not for SageMaker")
    packages = inspection.measured.packages or pytest.skip(inspection.measured.missing.get("packages", NO_PACKAGES))
    if toolkits(packages):
        pytest.skip("it may be the toolkit's: see sagemaker.toolkit")
    runs = inspection.measured.tools or pytest.skip(inspection.measured.missing.get("tools", "train was not run"))
    run = runs.get(TRAIN)
    require(
        run is not None and run.rc == 0,
        expected=f"`{TRAIN}` ends with 0",
        actual=summary(run) if run else "there is no such tool in the image",
        fix="put dockerfiles/scripts/sagemaker_*.py into /opt/sagemaker, and a link to sagemaker_train.py as "
        "/usr/local/bin/train",
    )


@pytest.mark.validator("sagemaker.toolkit", source=TOOLKIT_SOURCE, severity="warning", fabric="efa")
def test_toolkit(inspection: Inspection, require: Requirement) -> None:
    """SageMaker's training toolkit, which sets variables after the image's own, is not installed."""
    packages = inspection.measured.packages or pytest.skip(inspection.measured.missing.get("packages", NO_PACKAGES))
    lines = toolkits(packages)
    require(
        not lines,
        expected="none: when a job starts, it sets NCCL_PROTO, which switches the plugin's tuner off, and others",
        actual=f"{', '.join(lines)}: it sets NCCL_PROTO as a job starts, and the plugin's tuner is off"
        if lines
        else "none",
        fix=f"leave {TOOLKIT} out, and start jobs with the `train` of the target sagemaker-efa-pytorch",
    )
