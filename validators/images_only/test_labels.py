"""The labels of an image: they are complete and true."""

import re

from rdma_images.core.image import LABEL_PREFIX
from rdma_images.core.paths import COMMAND
from rdma_images.inspection.inspection import Inspection, InstalledNccl
from rdma_images.inspection.measurements import Libraries, MeasuredPackages, System
from rdma_images.inspection.values import ToolRun
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.applies import names_component

OCI_SOURCE = "https://github.com/opencontainers/image-spec/blob/main/annotations.md"
DECLARED_SOURCE = "an image says of itself what is in it, and nothing else"
NO_TORCH = "the image has no torch"  # what stands for a probe's value that is None
REQUIRED_LABELS = (
    *(f"org.opencontainers.image.{name}" for name in ("title", "description", "version", "revision")),
    *(f"{LABEL_PREFIX}.{name}" for name in ("target", "image-id", "fabric")),
)
PACKAGED_SOURCES = ("efa-installer-", "erdma-apt-")  # those whose stand-in brings packages
STAND_IN_SUFFIX = "+standin"  # how the version of such a package ends
OFI_PACKAGE = re.compile(r"libnccl-ofi(?:-ngc-v\d+)?")


def labelled_version(inspection: Inspection, component: str, brought_by: str = "") -> str:
    """Return the version that the labels give a component.

    Skips where they give none, or a stand-in brought another.
    """
    if brought_by and (stand_in := inspection.stand_in_id(brought_by)):
        skip(f"a stand-in took the place of {stand_in}: its versions are not the real ones")
    return inspection.subject.label(f"component.{component}") or skip(f"no label {LABEL_PREFIX}.component.{component}")


def require_label(require: Requirement, label: str, actual: str, component: str, suffix: str = "[.+]") -> None:
    """Require that the label is the measured version, or its beginning before `suffix`."""
    require(
        re.fullmatch(f"{re.escape(label)}(?:{suffix}.*)?", actual) is not None,
        expected=f"{label}, as the label {LABEL_PREFIX}.component.{component} says",
        actual=f"the label {LABEL_PREFIX}.component.{component} says {label}, and the image has {actual or 'none'}",
        fix="set labels from what was built: build the image again, or correct the label",
    )


def is_ours(inspection: Inspection) -> bool:
    """Return whether an image is of this project, by the target in its label or plan."""
    return bool(inspection.expected.target or inspection.subject.label("target"))


@validator("label.complete", source=OCI_SOURCE, when=is_ours)
def test_complete(inspection: Inspection, require: Requirement) -> None:
    """Every label that our images carry is there and says something."""
    missing = [name for name in REQUIRED_LABELS if not inspection.subject.labels.get(name)]
    require(
        not missing,
        expected=", ".join(REQUIRED_LABELS),
        actual=f"missing or empty: {', '.join(missing)}" if missing else "all of them",
        fix=f"build the image with `{COMMAND} build`, which sets them",
    )


@validator("label.python", source=DECLARED_SOURCE, when=names_component("python"))
def test_python(inspection: Inspection, system: System, require: Requirement) -> None:
    """The label names the Python that is there."""
    require_label(require, labelled_version(inspection, "python"), system.python, "python")


@validator("label.pytorch", source=DECLARED_SOURCE, when=names_component("pytorch"))
def test_pytorch(inspection: Inspection, require: Requirement) -> None:
    """The label names the torch that is there."""
    label = labelled_version(inspection, "pytorch")
    torch, why = inspection.measured.torch, inspection.measured.missing.get("torch", "")
    if not torch and why != NO_TORCH:
        skip(why)
    require_label(require, label, torch.version if torch else why, "pytorch")


@validator("label.cuda", source=DECLARED_SOURCE, when=names_component("cuda"))
def test_cuda(inspection: Inspection, require: Requirement) -> None:
    """The label names the CUDA that torch was built for."""
    torch = inspection.measured.torch
    label = labelled_version(inspection, "cuda")
    require_label(require, label, (torch.cuda or "") if torch else skip(inspection.measured.missing["torch"]), "cuda")


@validator("label.base", source=DECLARED_SOURCE, when=names_component("base"))
def test_base(inspection: Inspection, system: System, require: Requirement) -> None:
    """The label names the distribution that the image is made from."""
    label = labelled_version(inspection, "base", brought_by="base")
    distribution = f"{system.os.get('ID', '')}{system.os.get('VERSION_ID', '')}"
    require_label(require, re.split(r"[-@:]", label)[0], distribution, "base")


@validator("nccl.label", source=DECLARED_SOURCE, when=names_component("nccl"))
def test_nccl(inspection: Inspection, nccl: InstalledNccl, require: Requirement) -> None:
    """The label names the NCCL in use."""
    require_label(require, labelled_version(inspection, "nccl"), nccl.version, "nccl")


@validator("label.libfabric", source=DECLARED_SOURCE, when=names_component("libfabric"))
def test_libfabric(inspection: Inspection, require: Requirement) -> None:
    """The label names the libfabric that is there."""
    label = labelled_version(inspection, "libfabric", brought_by="efa-installer")
    runs: dict[str, ToolRun] = inspection.measured.tools or {}
    run = runs.get("fi_info --version")
    match = re.search(r"^libfabric: (\S+)", run.stdout, re.MULTILINE) if run else None
    require_label(require, label, match.group(1) if match else skip("fi_info did not say its libfabric"), "libfabric")


@validator("label.rdma-core", source=DECLARED_SOURCE, when=names_component("rdma-core"))
def test_rdma_core(inspection: Inspection, packages: MeasuredPackages, require: Requirement) -> None:
    """The label names the rdma-core that is there."""
    label = labelled_version(inspection, "rdma-core", brought_by="efa-installer")
    version = package_version(packages, re.compile("libibverbs1?")) or skip("no package manager knows of libibverbs")
    # AWS's versions end in words of its own, such as amzn0, which its changelog does not always have.
    require_label(require, label, version, "rdma-core", suffix=r"\D")


@validator(
    "label.efa-installer",
    source="the installer lists itself in /opt/amazon/efa_installed_packages",
    when=names_component("efa-installer"),
)
def test_efa_installer(inspection: Inspection, packages: MeasuredPackages, require: Requirement) -> None:
    """The label names the EFA installer that ran."""
    require_label(require, labelled_version(inspection, "efa-installer"), packages.efa_installer, "efa-installer")


@validator(
    "label.aws-ofi-nccl",
    source="the plugin's own first line of log, else the installer's package",
    when=names_component("aws-ofi-nccl"),
)
def test_aws_ofi_nccl(
    inspection: Inspection, libraries: Libraries, packages: MeasuredPackages, require: Requirement
) -> None:
    """The label names the aws-ofi-nccl that NCCL finds."""
    label = labelled_version(inspection, "aws-ofi-nccl")
    path = libraries.resolved["libnccl-net.so"].file
    stated = libraries.plugins[path].version if path in libraries.plugins else ""
    version = stated or (package_version(packages, OFI_PACKAGE) if path.startswith("/opt/amazon/") else "")
    require_label(require, label, version or skip("neither the plugin nor a package says which it is"), "aws-ofi-nccl")


@validator("label.rehearsal", source=DECLARED_SOURCE)
def test_rehearsal(inspection: Inspection, packages: MeasuredPackages, require: Requirement) -> None:
    """The label names the stand-ins that are in the image, and nothing else."""
    prefix = f"{LABEL_PREFIX}.component."
    labels = inspection.subject.labels.items()
    possible = {f"{name.removeprefix(prefix)}-{version}" for name, version in labels if name.startswith(prefix)}
    possible |= {"erdma-apt-key"} if inspection.subject.label("component.erdma-apt") else set()
    declared = inspection.subject.stand_ins
    packages_for = [source for source in declared if source.startswith(PACKAGED_SOURCES)]
    stand_ins = [f"{name} {version}" for name, version in packages.dpkg.items() if version.endswith(STAND_IN_SUFFIX)]
    unknown = [source for source in declared if source_id(source) not in possible]
    faults = [f"no stand-in is known for {', '.join(unknown)}"] if unknown else []
    if packages_for and packages.dpkg and not stand_ins:
        faults.append(f"no package is of a stand-in for {', '.join(packages_for)}")
    if stand_ins and not packages_for:
        faults.append(f"packages of a stand-in that is not named: {', '.join(stand_ins)}")
    require(
        not faults,
        expected=f"none, or some of {', '.join(sorted(possible))}" if possible else "none",
        actual="; ".join(faults) or ", ".join(declared) or "none",
        fix=f"build the image with `{COMMAND} build`, which says what it stood in for; leave its labels as they are",
    )


def source_id(source: str) -> str:
    """Return "erdma-apt-jammy" for its part "erdma-apt-jammy/erdma"."""
    return source.partition("/")[0]


def package_version(packages: MeasuredPackages, name: re.Pattern[str]) -> str:
    """Return the version of a package, without epoch and the packager's revision.

    "" where there is none.
    """
    versions = (version for package, version in {**packages.rpm, **packages.dpkg}.items() if name.fullmatch(package))
    return next(versions, "").rpartition(":")[2].partition("-")[0]
