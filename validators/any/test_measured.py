"""The measurements that other validators need are complete."""

from rdma_images.inspection.inspection import Inspection
from rdma_images.validate.validator import Requirement, not_measured, validator

PYTHON_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONPLATLIBDIR")


def torch_reports(inspection: Inspection) -> bool:
    """Return whether torch.imports has something to say of a torch that could not be imported."""
    packages = inspection.measured.packages
    return packages is not None and any("torch" in folder for folder in packages.wheels.values())


@validator("measured.complete", source="what was not measured is no evidence", tier="any")
def test_complete(inspection: Inspection, require: Requirement) -> None:
    """Every measurement came to its end."""
    measured = inspection.measured
    set_for_python = {n: v for n, v in inspection.subject.environment.items() if n in PYTHON_VARIABLES and v}
    settings = " and ".join(f"{name}={value}" for name, value in set_for_python.items())
    if measured.timed_out:
        not_measured("; ".join(measured.missing[name] for name in measured.timed_out))
    lost = [name for name in measured.failed if name != "torch" or not torch_reports(inspection)]
    require(
        not lost,
        expected="an answer of every probe",
        actual="; ".join(f"{name}: {measured.missing.get(name, 'no reason is known')}" for name in lost)
        + (f" ({settings} is set)" if lost and settings else "")
        or "all of them",
        fix=f"leave {' and '.join(set_for_python)} out of the image, then validate again"
        if settings
        else "find what in the image breaks its Python, its files or its layers, as named above; then validate again",
    )
