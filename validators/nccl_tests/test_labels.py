"""The GPUs that nccl-tests was compiled for."""

from rdma_images.core.image import LABEL_PREFIX
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Libraries, System
from rdma_images.validate.validator import Requirement, skip, validator

LABEL = "nccl-tests.architectures"
CODE_SOURCE = "CUDA programming guide, Binary Compatibility: code runs on GPUs of its own generation, as new or newer"


@validator("label.architectures", source=CODE_SOURCE, when=lambda inspection: inspection.subject.label(LABEL))
def test_architectures(inspection: Inspection, system: System, libraries: Libraries, require: Requirement) -> None:
    """Every program of nccl-tests holds code for the GPUs that the label names."""
    label = inspection.subject.label(LABEL) or ""
    if not system.python:
        skip("programs are read by the image's own Python, and it has none")
    lacking = {path: set(label.split()) - set(code) for path, code in libraries.gpu_code.items()}
    without = [f"{path} has none for {' '.join(sorted(missing))}" for path, missing in lacking.items() if missing]
    require(
        bool(lacking) and not without,
        expected=f"code for {label} in each, as the label {LABEL_PREFIX}.{LABEL} says",
        actual="; ".join(without) or (f"{len(lacking)} programs with it" if lacking else "no program of nccl-tests"),
        fix="build the image again, with `--set gpu=` for a single GPU; on other GPUs its programs end with an error",
    )
