"""Validate the images that a fabric is added to, and record what a plan needs to know of them."""

import posixpath
import re
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rdma_images import engine as engines
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import ExistingImage
from rdma_images.core.progress import Progress, silent
from rdma_images.engine.docker_command import ensure_image
from rdma_images.inspection.inspection import ImageConfig, Inspection, base_name, cuda_in_use, nccl_in_use
from rdma_images.inspection.measurements import PackageContents, Tree, WheelContents
from rdma_images.plan import onto
from rdma_images.validate import suite
from rdma_images.validate.validate_image import validate

# The variables of an image that a plan needs; others may hold secrets.
VARIABLES = re.compile(r"PATH|LD_LIBRARY_PATH|(?:NCCL|FI|OFI|NVIDIA)_\w+")
# Libraries of which the loader must find the added fabric's, not those of the image.
FABRIC_LIBRARY = re.compile(r"lib(?:nccl-(?:net|tuner|profiler)[\w-]*|fabric|efa|ibverbs|rdmacm|mlx5)\.so[\d.]*")
VERBS_PACKAGES = ("libibverbs1", "libibverbs")
PATH = re.compile(r"/[\w.+/-]+")  # that a Dockerfile takes as it is
CUDA_RUNTIME = re.compile(r"libcudart\.so\.\d+")


def measure_base_image(ref: str, progress: Progress = silent) -> ExistingImage:
    """Return what is known of the image `ref`, measured now unless this suite did before.

    Raises RdmaImagesError where it cannot be pulled or measured.
    """
    if (recorded := onto.find_record(ref)) and recorded.suite == suite.digest():
        return recorded
    engine = engines.ensure(progress)
    name = ensure_image(engine, ref, progress)
    report = validate(name, engine, progress=progress)
    if report.inspection is None:
        raise RdmaImagesError(f"{ref}: nothing could be measured in it\nsee that `docker run` starts it")
    if report.unmeasured:
        raise RdmaImagesError(
            f"{ref}: not measured, as this machine is too busy: {', '.join(report.unmeasured)}\nrun the same again"
        )
    with closing(engines.client(engine)) as client:
        api: Any = client.api
        config = api.inspect_image(name).get("Config") or {}
    failed = {check.id: check.actual for check in report.checks if check.outcome == "failed"}
    image = replace(
        from_inspection(report.inspection),
        ref=ref,
        suite=suite.digest(),
        workdir=config.get("WorkingDir") or "/",
        shell=tuple(config.get("Shell") or ()),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        failed=failed,
        stand_ins=report.stand_ins,
    )
    onto.write_record(image)
    return image


def from_inspection(inspection: Inspection) -> ExistingImage:
    """Return what was measured in an image; the caller adds name and configuration."""
    measured, subject = inspection.measured, inspection.subject
    if (tree := measured.tree) is None:
        raise RdmaImagesError(f"{subject.ref}: its files could not be read: {measured.missing.get('tree', '')}")
    system = measured.system.os if measured.system else {}
    packages = {**measured.packages.rpm, **measured.packages.dpkg} if measured.packages else {}
    verbs, nccl = tree.libraries.resolved.get("libibverbs.so.1"), nccl_in_use(inspection)
    plugins = tuple(path for path, plugin in tree.libraries.plugins.items() if not plugin.error)
    python = measured.system.python if measured.system else ""
    installed = _python_packages(inspection)
    python_packages = dict(line.split("==") for line in installed)
    return ExistingImage(
        ref=subject.ref,
        suite="",
        platform="/".join(subject.platform.split("/")[:2]),
        system=f"{system.get('ID', '')}{system.get('VERSION_ID', '')}",
        python=python,
        pytorch=measured.torch.version.partition("+")[0] if measured.torch else "",
        cuda=cuda_in_use(inspection, tree.libraries),
        nccl=nccl.version if nccl else "",
        fabric=inspection.expected.fabric or "",
        installer=measured.packages.efa_installer if measured.packages else "",
        verbs=verbs.file if verbs else "",
        verbs_package=next((packages[name] for name in VERBS_PACKAGES if name in packages), ""),
        plugins=plugins,
        loader_folders=_loader_folders(inspection, tree),
        cuda_runtime=_cuda_runtime(inspection, tree),
        environment={
            name: value
            for name, value in subject.environment.items()
            if VARIABLES.fullmatch(name) and value.isprintable()
        },
        user=subject.user,
        workdir="",
        entrypoint=(),
        shell=(),
        layers=tuple(subject.layers),
        failed={},
        python_path=measured.system.python_path if measured.system else "",
        python_packages=python_packages,
        python_requires={
            name: tuple(line for line in details.requires if _is_met(line, python_packages, python))
            for name, details in zip(python_packages, installed.values(), strict=True)
        },
        nccl_path=nccl.path if nccl else "",
    )


def _python_packages(inspection: Inspection) -> dict[str, WheelContents]:
    """Return what the image's Python imports, by name==version; without packages that have no version."""
    system, packages = inspection.measured.system, inspection.measured.packages
    contents = inspection.measured.contents or PackageContents()
    installed: dict[str, tuple[str, WheelContents]] = {}
    for folder in reversed(system.python_folders if system else []):  # the first on the path comes last, and stays
        for name, version in packages.wheels.get(folder, {}).items() if packages else ():
            with suppress(InvalidRequirement):
                (specifier,) = Requirement(f"{name}=={version}").specifier
                details = contents.wheels.get(folder, {}).get(name, WheelContents())
                installed[canonicalize_name(name)] = (specifier.version, details)
    return {f"{name}=={version}": details for name, (version, details) in installed.items()}


def _is_met(line: str, versions: Mapping[str, str], python: str) -> bool:
    """Return whether a package's requirement holds in an image now."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return False
    environment = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python, "extra": ""}
    if requirement.marker and not requirement.marker.evaluate(environment):
        return False
    current = versions.get(canonicalize_name(requirement.name))
    return current is not None and requirement.specifier.contains(current, prereleases=True)


def _library_path_folders(image_config: ImageConfig) -> list[str]:
    return [folder.rstrip("/") for folder in image_config.environment.get("LD_LIBRARY_PATH", "").split(":") if folder]


def _loader_folders(inspection: Inspection, tree: Tree) -> tuple[str, ...]:
    """Return the folders with a fabric's library that the loader searches."""
    library_folders = {
        posixpath.dirname(path) for path in tree.files.library_files if FABRIC_LIBRARY.fullmatch(base_name(path))
    }
    library_paths = [answer.path for name, answer in tree.libraries.resolved.items() if FABRIC_LIBRARY.fullmatch(name)]
    if inspection.measured.settings:
        answers_without = inspection.measured.settings.without_path.items()
        library_paths += [path for name, path in answers_without if FABRIC_LIBRARY.fullmatch(name)]
    folders = [*_library_path_folders(inspection.subject), *map(posixpath.dirname, filter(None, library_paths))]
    return tuple(folder for folder in dict.fromkeys(folders) if folder in library_folders and PATH.fullmatch(folder))


def _cuda_runtime(inspection: Inspection, tree: Tree) -> str:
    """Return the libcudart of the image's CUDA.

    It is torch's, else one that LD_LIBRARY_PATH leads to, else any.
    """
    major = cuda_in_use(inspection, tree.libraries).partition(".")[0]
    mapped = inspection.measured.torch.mapped if inspection.measured.torch else []
    files = [path for path in (*mapped, *tree.files.library_files) if CUDA_RUNTIME.fullmatch(base_name(path))]
    candidates = [path for path in files if base_name(path) == f"libcudart.so.{major}"]
    searched = _library_path_folders(inspection.subject)
    return min(candidates, key=lambda path: (path not in mapped, posixpath.dirname(path) not in searched), default="")
