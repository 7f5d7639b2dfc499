"""SageMaker's training toolkit, where it is installed."""

from rdma_images.inspection.measurements import MeasuredPackages

TOOLKIT = "sagemaker-training"
NO_PACKAGES = "no packages were read"


def toolkits(packages: MeasuredPackages) -> list[str]:
    """Return each installed toolkit: version and folder."""
    return [
        f"{TOOLKIT} {versions[TOOLKIT]} in {folder}"
        for folder, versions in packages.wheels.items()
        if TOOLKIT in versions
    ]
