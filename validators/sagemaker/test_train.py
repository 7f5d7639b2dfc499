"""An image for SageMaker trains as SageMaker starts it."""

from rdma_images.inspection.inspection import Inspection
from rdma_images.validate.probes.tools import TRAIN
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.tool_runs import NO_PACKAGES, summary, toolkits

TRAIN_SOURCE = (
    "Amazon SageMaker's developer guide, How Amazon SageMaker runs your training image: the command is `train`"
)


@validator("sagemaker.train", source=TRAIN_SOURCE)
def test_train(inspection: Inspection, require: Requirement) -> None:
    """The command that SageMaker starts can be started."""
    packages = inspection.measured.packages or skip(inspection.measured.missing.get("packages", NO_PACKAGES))
    if toolkits(packages):
        skip("it may be the toolkit's: see sagemaker.toolkit")
    runs = inspection.measured.tools or skip(inspection.measured.missing.get("tools", "train was not run"))
    run = runs.get(TRAIN)
    require(
        run is not None and run.exit_code == 0,
        expected=f"`{TRAIN}` ends with 0",
        actual=summary(run) if run else "there is no such tool in the image",
        fix="put dockerfiles/scripts/sagemaker_*.py into /opt/sagemaker, and a link to sagemaker_train.py as "
        "/usr/local/bin/train",
    )
