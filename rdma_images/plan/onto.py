"""Plan how a fabric is added to an existing image, and refuse images where it cannot."""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.requirements import Requirement

from rdma_images.components.efa_installer import RDMA_CORE, InstallerDetails
from rdma_images.components.nccl import NAME as NCCL
from rdma_images.components.nccl_tests import NAME as NCCL_TESTS
from rdma_images.components.pytorch import NAME as PYTORCH
from rdma_images.core import local_package, versions
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Component, Details, ExistingImage, Image, ImageChange, Onto
from rdma_images.core.paths import state_folder
from rdma_images.core.step_files import step_file
from rdma_images.facts import Facts, gpu_software
from rdma_images.facts.fabric_software import EFA_INSTALLER as INSTALLER
from rdma_images.plan import onto_changes
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.matrix import IMAGE_AXES, ONTO_AXES, Matrix, Target, reference_problem
from rdma_images.plan.refusals import BrokenRule
from rdma_images.plan.rules import wheel_rules

DECIDED_BY = "--onto"  # what decides the versions that were measured
SOURCE = "measured in the image"
# Rules about wheels that would be installed: the image's own NCCL is in it already.
RULES_ABOUT_WHEELS_TO_INSTALL = frozenset({wheel_rules.nccl_has_wheel_for_cuda.id})
# Folders that the loader searches by itself, ld.so(8); and where this tool's own plugin goes.
SYSTEM_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
PLUGIN_FOLDERS = ("/opt/amazon/efa/lib", "/opt/amazon/ofi-nccl/lib")
WHEEL_FOLDER = "/nvidia/nccl/lib/"  # of the library in NCCL's wheels
OFED = "mlnx"  # in the versions of NVIDIA's own builds of rdma-core
RECORD = step_file("image.json", "plan", ExistingImage)  # what was measured in such an image, by its digest
MeasureBase = Callable[[str], ExistingImage | None]  # returns the measurements of an image by its reference
GPUS = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


def find_record(ref: str) -> ExistingImage | None:
    """Return the measurements of the image `ref`; None without any by this version."""
    record = RECORD.read_file_if_valid(_path(ref))
    return record if record and record.ref == ref else None


def write_record(image: ExistingImage) -> None:
    """Write the measurements of an image."""
    RECORD.write_file(_path(image.ref), image)


def _path(ref: str) -> Path:
    return state_folder() / "onto" / f"{ref.rpartition(':')[2]}.json"


def matrix_onto(matrix: Matrix, targets: Sequence[str], ref: str) -> Matrix:
    """Return the matrix whose one chosen target is added to the image of --onto.

    Raises RefusedError for another number of targets, and for a reference that can lead to another image tomorrow.
    """
    if len(targets) != 1:
        raise RefusedError(f"--onto {ref}: needs exactly one target\nname it with --target")
    if problem := reference_problem(ref):
        raise RefusedError(f"--onto {problem}")
    (name,) = targets
    return matrix.model_copy(update={"targets": {**matrix.targets, name: target_onto(matrix.target(name), ref)}})


def target_onto(target: Target, ref: str) -> Target:
    """Return the target as a layer over the image `ref`. Raises RefusedError if it compiles Python packages."""
    if target.onto == ref:
        return target
    if target.source_packages:
        raise RefusedError(
            f"--onto {ref}: the target has source-packages, and nothing is compiled for the Python of that image\n"
            "install them into that image first, and name a target without source-packages"
        )
    row_axes = set(ONTO_AXES) - {NCCL}  # the row names the NCCL for another torch
    return target.model_copy(
        update={
            "onto": ref,
            "template": None,
            "default": {axis: value for axis, value in target.default.items() if axis in row_axes},
            "values": {axis: values for axis, values in target.values.items() if axis in row_axes},
            "exclude": (),
        }
    )


def measured_target(target: Target, base: ExistingImage, changes: Mapping[str, str], facts: Facts) -> Target:
    """Return the target with the image's versions. Raises RefusedError for `changes` of them."""
    row = {"base": _base_name(base, facts), "cuda": base.cuda, "nccl": base.nccl, "platform": base.platform}
    for axis, value in changes.items():
        if axis in IMAGE_AXES and axis != NCCL:
            current = row.get(axis) or getattr(base, axis, "") or f"no {axis}"
            raise RefusedError(
                f"--set {axis}={value}: the image decides it, and has {current}\n"
                "leave it out, or change it in the Dockerfile of that image"
            )
    _check_nccl(changes.get(NCCL) or target.default.get(NCCL) or base.nccl, base)
    return target.model_copy(update={"default": row | target.default})


def _check_nccl(version: str, base: ExistingImage) -> None:
    """Raise RefusedError for an NCCL that cannot take the place of the image's."""
    if version == base.nccl:
        return
    if version == PYTORCH:
        raise RefusedError(f"nccl {PYTORCH}: the torch of the image stays, and so does its NCCL\nleave nccl out")
    if not (WHEEL_FOLDER in base.nccl_path and any(map(gpu_software.WHEEL_NAME.fullmatch, base.python_packages))):
        raise RefusedError(
            f"nccl {version}: the image's programs load {base.nccl_path or 'no NCCL'}, which no wheel would replace\n"
            "leave nccl out, or replace it in the Dockerfile of that image"
        )
    if not versions.at_least(version, base.nccl):
        raise RefusedError(
            f"nccl {version}: the image has {base.nccl}, and its programs may call what an older one lacks\n"
            f"choose {base.nccl} or a newer one"
        )


def broken_rules(base: ExistingImage, target: Target, facts: Facts) -> tuple[BrokenRule, ...]:
    """Return why no version of the fabric can be added to an image."""
    return (*_broken_rules(base, target, facts), *_broken_rules_of_verbs(base))


def _broken_rule(name: str, reason: str, fix: str, source: str = SOURCE) -> BrokenRule:
    return BrokenRule(f"onto-{name}", {}, f"{reason}\n{fix}", source)


def _broken_rules(base: ExistingImage, target: Target, facts: Facts) -> Iterator[BrokenRule]:
    bases = [f"{name} (glibc {row.glibc})" for name, row in facts.bases.bases.items() if row.cuda is None]
    able = f"take an image on {', '.join(bases)}"
    if base.system.startswith("alpine"):
        yield _broken_rule("libc", f"{base.system} has musl, and the fabric's libraries need glibc", able)
    elif not _base_name(base, facts):
        system = base.system or "a system without /etc/os-release"
        yield _broken_rule("system", f"{system}: this tool's stages were never tried on it", able, "facts/bases.yaml")
    if not base.nccl:
        fix = "install torch with its NCCL wheel, or nvidia-nccl-cu13, into the image first"
        yield _broken_rule("nccl", "no NCCL is in the image, or several, of which torch loads none", fix)
    elif base.nccl not in facts.nccl.releases:
        releases = sorted(facts.nccl.releases, key=versions.sort_key)
        nearest = next((version for version in releases if versions.at_least(version, base.nccl)), releases[-1])
        fix = f"nearest that is known: NCCL {nearest}"
        yield _broken_rule("nccl", f"NCCL {base.nccl}: no plugin is known for it", fix, "facts/nccl.yaml")
    elif not base.cuda:
        yield _broken_rule("cuda", f"its NCCL {base.nccl} does not say its CUDA", "install torch with CUDA first")
    if NCCL_TESTS in target.complete() and not posixpath.basename(base.nccl_path).startswith("libnccl.so"):
        reason = f"its NCCL is in {base.nccl_path or 'no library'}, and nccl-tests are linked with libnccl.so"
        yield _broken_rule(NCCL_TESTS, reason, "leave nccl-tests out")
    if base.fabric not in ("", target.fabric):
        reason = f"it is for {base.fabric}, and the rdma-core of one fabric does not know the other's devices"
        yield _broken_rule("fabric", reason, "take the image that it was made from")


def _broken_rules_of_verbs(base: ExistingImage) -> Iterator[BrokenRule]:
    if OFED in base.verbs_package:
        reason = f"libibverbs {base.verbs_package} is NVIDIA's OFED: newer by its number than what would replace it"
        yield _broken_rule(RDMA_CORE.name, reason, "apt-get purge it in a Dockerfile of your own first, as AWS does")
    elif base.verbs and not base.verbs.startswith(("/lib/", "/usr/lib/")):
        reason = f"its loader takes {base.verbs}, which belongs to no package and would stay in front"
        yield _broken_rule(RDMA_CORE.name, reason, "remove it in a Dockerfile of your own first")


def with_measured(planned: Candidate, base: ExistingImage) -> Candidate:
    """Return a candidate with the Python and torch of the image, for its tag."""
    measured = {"python": ".".join(base.python.split(".")[:2]), "pytorch": base.pytorch}
    measured_versions = {name: version for name, version in planned.versions.items() if name != "python"}
    return replace(
        planned, versions=measured_versions | {name: version for name, version in measured.items() if version}
    )


def image_onto(image: Image, base: ExistingImage) -> Image:
    """Return the planned image as one that is added to `base`.

    Raises:
        RefusedError: It has packages that --onto does not install, or the image has no Python for them.
    """
    if address := next(filter(_is_built, image.python_packages), ""):
        raise RefusedError(
            f"{image.target}: {address}: nothing is built for the Python of an image of --onto\n"
            "make a wheel of it with pip wheel in that image, and write ./NAME.whl"
        )
    if image.python_packages and not base.python:
        packages = ", ".join(image.python_packages)
        raise RefusedError(
            f"{image.target}: no Python is in the image for {packages}\nremove them, or take another image"
        )
    measured = {name: getattr(base, name) for name in ("python", "pytorch") if getattr(base, name)}
    components = {name: part for name, part in image.components.items() if name != "python"}
    for name in ("base", "cuda", *((NCCL,) if image.version(NCCL) == base.nccl else ())):
        components[name] = replace(components[name], decided_by=DECIDED_BY)
    if (part := components.get(INSTALLER)) and isinstance(part.details, InstallerDetails):
        components[INSTALLER] = replace(part, details=replace(part.details, cuda_runtime=""))
    components |= {name: Component(name, version, DECIDED_BY, Details()) for name, version in measured.items()}
    tag = f"{image.tag}-onto-{base.digest.removeprefix('sha256:')[:12]}"
    return replace(
        image,
        id=f"{image.target}-{tag}",
        tag=tag,
        template=f"onto-{image.fabric}",
        components=components,
        onto=_onto(replace(image, components=components), base),
    )


def _is_built(requirement: str) -> bool:
    """Return whether a package is a project or a commit, and so has no wheel yet."""
    package = local_package.parse(Requirement(requirement).url)
    return package is not None and package.kind != "wheel"


def _onto(image: Image, base: ExistingImage) -> Onto:
    """Return how the fabric of `image` is added to `base`.

    Hidden are folders beside the system's with a library of a fabric; removed, for EFA, are the network plugins in the
    system's folders, which the loader always searches. The changes say both, what is added, and what is kept.
    """
    foreign = tuple(folder for folder in base.loader_folders if folder not in PLUGIN_FOLDERS)
    hidden = tuple(folder for folder in foreign if not _is_system(folder))
    removed_plugins = tuple(
        path for path in base.plugins if _is_system(posixpath.dirname(path)) and image.fabric == "efa"
    )
    environment = {**_environment(image, base, (*hidden, *PLUGIN_FOLDERS)), **image.environment}
    changes = (
        *onto_changes.changes(image, base),
        *onto_changes.replacements(base, environment, hidden, removed_plugins),
    )
    layers = ImageChange("kept", f"its {len(base.layers)} layers", "nodes that have them pull what is above them alone")
    changes = (*changes, *onto_changes.started_as(image, base), layers)
    return Onto(base, changes, environment, hidden, removed_plugins)


def _is_system(folder: str) -> bool:
    return folder in SYSTEM_FOLDERS or posixpath.dirname(folder) in ("/lib", "/usr/lib")


def _environment(image: Image, base: ExistingImage, hidden: tuple[str, ...]) -> dict[str, str]:
    """Return the variables that replace the image's own."""
    current = base.environment
    programs = [folder for part in image.components.values() for folder in part.details.program_folders]
    path = current.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").split(":")
    # Last, so that the image's own programs come first, its mpirun for example.
    variables = {"PATH": ":".join([*path, *(folder for folder in programs if folder not in path)])}
    variables |= {name: value for name, value in GPUS.items() if not current.get(name)}
    searched = current.get("LD_LIBRARY_PATH", "")
    remaining = ":".join(folder for folder in searched.split(":") if folder.rstrip("/") not in hidden)
    if remaining != searched:
        variables["LD_LIBRARY_PATH"] = remaining
    if "NCCL_NET_PLUGIN" in current:
        # An empty value would be an empty list of plugins to NCCL 2.28.3 and later: see facts/environment.yaml.
        variables["NCCL_NET_PLUGIN"] = "libnccl-net.so" if image.fabric == "efa" else "none"
    return {name: value for name, value in variables.items() if current.get(name) != value}


def _base_name(base: ExistingImage, facts: Facts) -> str:
    """Return the base of facts/bases.yaml that has the system of an image; "" for none."""
    rows = facts.bases.bases.items()
    return next((name for name, row in rows if row.cuda is None and row.system == base.system), "")
