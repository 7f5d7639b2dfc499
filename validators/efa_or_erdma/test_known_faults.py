"""Versions that are known to fail, or to go without the fabric."""

from rdma_images.chain.nccl_environment import started_environment
from rdma_images.facts import facts_file
from rdma_images.facts.faults import PackageFault, PackageFaults
from rdma_images.inspection.inspection import Inspection, InstalledNccl, cuda_in_use
from rdma_images.inspection.measurements import Libraries, MeasuredPackages
from rdma_images.validate.probes.tree import EXTENSION
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.variables import FAULT_SOURCE, component_versions, known_faults

PACKAGE_SOURCE = "facts/package-faults.yaml, each row with its source"


@validator("nccl.broken", source=FAULT_SOURCE, severity="warning")
def test_nccl(inspection: Inspection, nccl: InstalledNccl, require: Requirement) -> None:
    """The NCCL in use has no known fault over the fabric."""
    known_faults(inspection, {**component_versions(inspection), "nccl": nccl.version}, "nccl").require_none(
        require, "an NCCL", nccl.version
    )


@validator(
    "torch.broken",
    source=FAULT_SOURCE,
    severity="warning",
    when=lambda inspection: "torch" in component_versions(inspection),
)
def test_torch(inspection: Inspection, require: Requirement) -> None:
    """The installed torch has no known fault between nodes."""
    versions = component_versions(inspection)
    known_faults(inspection, versions, "torch").require_none(require, "a torch", versions["torch"])


@validator("packages.broken", source=PACKAGE_SOURCE, severity="warning")
def test_packages(
    inspection: Inspection, packages: MeasuredPackages, libraries: Libraries, fabric: str, require: Requirement
) -> None:
    """No installed Python package is a version known to fail or to bypass the fabric."""
    facts = facts_file.read(PackageFaults)
    installed, environment = packages.installed, started_environment(inspection)
    versions_by_name, cuda = dict(installed), cuda_in_use(inspection, libraries).partition(".")[0]
    rows = [
        row
        for row in facts.faults
        if row.fabric == fabric and row.cuda in ("", cuda) and row.unless_package not in versions_by_name
        if not row.is_avoided(environment) and _is_the_build(libraries, row)
    ]
    faulty = [
        (name, version, row)
        for name, version in installed
        for row in rows
        if name in row.packages and row.holds(version)
    ]
    require(
        not faulty,
        expected="packages of which no such fault is known",
        actual="; ".join(f"{name} {version}: {row.why} [{facts.cite(row)}]" for name, version, row in faulty)
        or f"none is known of {len(installed)} packages",
        fix="; ".join(dict.fromkeys(row.fix for _, _, row in faulty)),
    )


def _is_the_build(libraries: Libraries, row: PackageFault) -> bool:
    """Return whether the package's modules are of the faulty build, by their needs."""
    module_closures = [
        loaded
        for path, loaded in libraries.closures.items()
        if row.modules and f"-packages/{row.modules}/" in path and EXTENSION.fullmatch(path)
    ]
    names = {name for loaded in module_closures for name in (*loaded.libraries, *loaded.missing)}
    if row.modules and not module_closures:
        return False
    return row.unless_needs not in names and (not row.needs or row.needs in names)


@validator("verbs.broken", source=FAULT_SOURCE, severity="warning")
def test_verbs_broken(inspection: Inspection, require: Requirement) -> None:
    """The rdma-core in use knows the fabric's devices, and is not known to fail on it."""
    in_image = component_versions(inspection)
    version = in_image.get("rdma-core") or skip("the names of libefa and libibverbs do not say their version")
    known_faults(inspection, in_image, "rdma-core").require_none(require, "an rdma-core", version)
