"""Find the image to run: the one built of a target, or any of the engine by name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast, get_args

from rdma_images.build.build_record import REPOSITORY
from rdma_images.core import files, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import LABEL_PREFIX, Build, Fabric, RunSetting
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import BUILD
from rdma_images.facts import Facts
from rdma_images.inputs import target_options
from rdma_images.inputs.project import Project
from rdma_images.plan import runtime


@dataclass(frozen=True)
class BuiltImage:
    """An image that was built: its record, and the command that builds it again."""

    build: Build
    build_command: str


def built_image(project: Project, target: str, pairs: Sequence[str] | None) -> BuiltImage:
    """Return the image that was built of a target's default row, or of that row with changes.

    Args:
        project: The matrix and the facts.
        target: The target's name; empty for the only one of the matrix.
        pairs: "axis=value", as --set has them.

    Raises:
        RefusedError: It was not built, with the command that builds it; there are several to choose from.
    """
    targets = list(project.matrix.targets)
    if not target and len(targets) > 1:
        choices = [name for name in targets if _built_refs(name)] or targets
        raise RefusedError(f"which target? the matrix has {len(targets)}\n{_bullets(f'--target {c}' for c in choices)}")
    (image,) = target_options.chosen_images(project, [target or targets[0]], False, pairs)
    command = " ".join([f"{COMMAND} build {image.options}", *(f"--set {pair}" for pair in pairs or ())])
    if build := BUILD.read_if_valid(image.id):
        return BuiltImage(build, command)
    built_refs = _built_refs(image.target)
    choice = f", or choose a built one:\n{_bullets(f'--image {ref}' for ref in built_refs)}" if built_refs else ""
    raise RefusedError(f"{image.id} was not built here\nrun `{command}` first{choice}")


def settings_by_label(labels: Mapping[str, str], facts: Facts) -> list[RunSetting]:
    """Return what an image asks for by its label of the fabric.

    Without one, what images of every fabric ask for.
    """
    if label := labels.get(f"{LABEL_PREFIX}.fabric"):
        return list(runtime.settings(cast(Fabric, label), facts))
    settings, *other_settings = (list(runtime.settings(fabric, facts)) for fabric in get_args(Fabric))
    options = [{setting.docker for setting in option} for option in other_settings]
    return [setting for setting in settings if all(setting.docker in option for option in options)]


def _built_refs(target: str) -> list[str]:
    """Return the names of a target's built images, from their build.json."""
    builds = (BUILD.read_if_valid(folder.name) for folder in files.list_folder(paths.IMAGES))
    return [build.ref for build in builds if build and build.ref.startswith(f"{REPOSITORY}/{target}:")]


def _bullets(choices: Iterable[str]) -> str:
    return "\n".join(f"  {choice}" for choice in choices)
