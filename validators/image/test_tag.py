"""The versions in an image's tag."""

import re

import pytest

from rdma_images.inspection.inspection import Inspection, nccl_in_use
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.in_use import resolved_plugin

TAG_SOURCE = (
    "an image is chosen by its tag: 2.15.0-cu13.2-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.13-debian13, or cu128, py312"
)
VERSION = r"(\d+\.\d+(?:\.\d+)?)"
# How a tag names a component; NCCL has a check of its own.
COMPONENT_PATTERNS = {
    "pytorch": rf"(?:py)?torch[-_]?{VERSION}",
    "cuda": rf"cu(?:da)?[-_]?(\d{{3}}|{VERSION[1:]}",
    "efa-installer": rf"efa[-_]?{VERSION}",
    "aws-ofi-nccl": rf"ofi(?:-nccl)?[-_]?{VERSION}",
    "python": r"py(?:thon)?[-_]?(3\.?\d{1,2})",
    "base": r"((?:ubuntu|debian)\d[\d.]*)",
}
LEADING_VERSION = re.compile(r"(\d+\.\d+\.\d+)(?=$|[-_])")  # torch's, where the repository is named after it
PACKED_CUDA = re.compile(r"(\d+)(\d)")  # cu128
PACKED_PYTHON = re.compile(r"(3)(\d+)")  # py312


def versions_in_tag(ref: str) -> dict[str, str]:
    """Return the versions that the reference of an image names, by component."""
    name, _, tag = ref.partition("@")[0].rpartition("/")[2].partition(":")
    versions_ = {
        component: match.group(1).rstrip(".")
        for component, pattern in COMPONENT_PATTERNS.items()
        if (match := re.search(rf"(?<![A-Za-z0-9]){pattern}(?![\d.]*\d)", tag))
    }
    if "torch" in name and (first := LEADING_VERSION.match(tag)):
        versions_.setdefault("pytorch", first.group(1))
    for component, packed in (("cuda", PACKED_CUDA), ("python", PACKED_PYTHON)):
        if match := packed.fullmatch(versions_.get(component, "")):
            versions_[component] = f"{match.group(1)}.{match.group(2)}"
    return versions_


def measured_versions(inspection: Inspection) -> dict[str, str]:
    """Return the image's versions by component; "" where none, or a stand-in's, is known."""
    torch, packages = inspection.measured.torch, inspection.measured.packages
    system, tree = inspection.measured.system, inspection.measured.tree
    nccl = nccl_in_use(inspection)
    plugin = resolved_plugin(inspection, tree.libraries, nccl.path) if tree and nccl else None
    plugin_library = tree.libraries.plugins.get(plugin or "") if tree else None
    measured = {
        "pytorch": torch.version.partition("+")[0] if torch else "",
        "cuda": (torch.cuda or "") if torch else "",
        "efa-installer": packages.efa_installer if packages else "",
        "aws-ofi-nccl": plugin_library.version if plugin_library else "",
        "python": system.python if system else "",
        "base": f"{system.os.get('ID', '')}{system.os.get('VERSION_ID', '')}" if system else "",
    }
    # A Python that comes with the base is a stand-in's where the base is.
    return {c: version for c, version in measured.items() if not inspection.stand_in_id("base" if c == "python" else c)}


def names_versions(inspection: Inspection) -> bool:
    """Return whether the tag names a version that was measured, beside NCCL's."""
    measured = measured_versions(inspection)
    return any(measured.get(component) for component in versions_in_tag(inspection.subject.ref))


@pytest.mark.validator("label.tag", source=TAG_SOURCE, when=names_versions)
def test_tag(inspection: Inspection, require: Requirement) -> None:
    """Every version that the tag names, beside NCCL's, is that of what is in the image."""
    stated, measured = versions_in_tag(inspection.subject.ref), measured_versions(inspection)
    compared = {component: version for component, version in stated.items() if measured.get(component)}
    differing = {c: v for c, v in compared.items() if measured[c] != v and not measured[c].startswith(f"{v}.")}
    require(
        not differing,
        expected=", ".join(f"{component} {measured[component]}" for component in compared),
        actual=", ".join(f"{component} {version}" for component, version in (differing or compared).items())
        + f" in {inspection.subject.ref}",
        fix="tag the image with what is in it",
    )
