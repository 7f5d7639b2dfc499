"""What a request for a job names: its launcher, image, instance type and rank starter, and what excludes each other."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import FABRIC_TITLES, Image, KnownImage
from rdma_images.core.paths import COMMAND
from rdma_images.facts import Facts
from rdma_images.facts.instances import InstanceType
from rdma_images.facts.launchers import Launcher, RankStarter
from rdma_images.inputs import target_options
from rdma_images.inputs.project import Project
from rdma_images.jobs.write import job_image
from rdma_images.jobs.write.job import JobRequest
from rdma_images.plan import image_settings, instance_fit


@dataclass(frozen=True)
class JobInputs:
    """The launcher, image, instance type and rank starter that a request names."""

    launcher: Launcher
    image: KnownImage
    instance: str
    instance_type: InstanceType
    rank_starter: RankStarter


def job_inputs(request: JobRequest, project: Project, planned: KnownImage | None) -> JobInputs:
    """Return what a request names. Raises RefusedError for what is unknown, missing, or does not go together."""
    launchers = project.facts.launchers.launchers
    if request.launcher not in launchers:
        raise RefusedError(
            f"--launcher {request.launcher}: no such launcher\n{suggestion(request.launcher, launchers)}"
        )
    launcher = launchers[request.launcher]
    node = project.facts.instances.find(request.instance)
    planned = planned or _planned_image(request, node, launcher, project)
    instance = _type_name(request.instance, node, project.facts)
    for refusal in _mismatches(request, launcher, planned, instance, project.facts):
        raise RefusedError(refusal)
    available = job_image.rank_starters(planned, request.settings.launch)
    rank_starter = next((name for name in available if name in launcher.rank_starters), None)
    if rank_starter is None:
        suitable = [
            name
            for name, row in launchers.items()
            if {*row.rank_starters} & {*available} and planned.fabric in row.fabrics
        ]
        missing = [name for name in launcher.rank_starters if name == "mpirun" or request.settings.launch != "mpirun"]
        components = " or ".join(job_image.RANK_STARTER_COMPONENTS[name] for name in missing)
        others = f"choose one of its launchers: {', '.join(suitable)}"
        fix = others if suitable else f"add {components} to its row of matrix.yaml"
        raise RefusedError(
            f"launcher {request.launcher} starts ranks with {' or '.join(launcher.rank_starters)}, "
            f"and {request.target or 'an image that is no target'} "
            f"has {' and '.join(available) or f'no {components}'}\n{fix}"
        )
    return JobInputs(launcher, planned, instance, node, rank_starter)


def _planned_image(request: JobRequest, node: InstanceType, launcher: Launcher, project: Project) -> KnownImage:
    """Return the image of the request's target, or one made of its node and launch."""
    if request.target:
        changes = [f"{axis}={value}" for axis, value in request.changes.items()]
        (planned,) = target_options.chosen_images(project, [request.target], False, changes)
        return planned
    if not request.image:
        raise RefusedError("the job has no image\ngive --target, or --image host/repository@sha256:…")
    if not request.settings.launch:
        example = launcher.rank_starters[-1]
        raise RefusedError(
            f"--image {request.image} belongs to no target, and nothing says what starts its ranks\n"
            f"add --field launch=, as in --field launch={example}"
        )
    if request.settings.launch == "mpirun" and launcher.kind != "slurm":
        raise RefusedError(
            f"--image {request.image} belongs to no target, and ssh hands on no variables that are not known\n"
            "choose another launch or --launcher slurm, or make the image a target: `onto` in matrix.yaml"
        )
    return KnownImage(
        id=f"image-{request.image.rpartition(':')[2][:12]}",
        target="",
        fabric=node.fabric,
        platform="linux/arm64" if node.architecture == "arm64" else "linux/amd64",
        run_settings=tuple(image_settings.run_settings(node.fabric, project.facts)),
    )


def _type_name(name: str, node: InstanceType, facts: Facts) -> str:
    """Return the type's own name, whatever prefix the user gave or left out."""
    return next(
        key for key, row in facts.instances.types.items() if row is node and key.endswith(name.removeprefix("ml."))
    )


def _mismatches(
    request: JobRequest, launcher: Launcher, planned: KnownImage, instance: str, facts: Facts
) -> Iterator[str]:
    """Yield why the launcher, the image and the instance type do not go together."""
    if isinstance(planned, Image):
        yield from instance_fit.problems(planned, instance, facts)
    if planned.fabric not in launcher.fabrics:
        yield (
            f"launcher {request.launcher} is for {' and '.join(FABRIC_TITLES[fabric] for fabric in launcher.fabrics)}, "
            f"and {request.target or instance} is for {FABRIC_TITLES[planned.fabric]}\n"
            f"{COMMAND} job.launchers shows the others"
        )
    if launcher.instances and not re.fullmatch(launcher.instances, instance):
        yield f"{request.launcher} has no instance type {instance}\nchoose another --instance or --launcher"
    least = launcher.min_nodes
    if request.nodes < least:
        yield (
            f"--nodes {request.nodes}: launcher {request.launcher} starts jobs on {least} or more nodes\n"
            f"ask for {least} or more, or choose another --launcher: {COMMAND} job.launchers shows them"
        )


def rank_restarts(request: JobRequest, inputs: JobInputs) -> int:
    """Return how often torchrun or accelerate starts ranks again; 0 where the launcher starts the job again."""
    return request.settings.restarts if inputs.launcher.restarts == "torchrun" else 0


def refuse_unknown_fields(request: JobRequest, launcher: Launcher, facts: Facts) -> None:
    """Raise RefusedError for all fields that the launcher does not support, at once."""
    table = facts.launchers
    lines = []
    for name in request.fields():
        if name not in launcher.fields:
            supporting = [other for other, row in table.launchers.items() if name in row.fields]
            support = f"these have it: {', '.join(supporting)}" if supporting else "no launcher has it"
            reason = f": {launcher.unsupported_fields[name]}" if name in launcher.unsupported_fields else ""
            lines.append(f"launcher {request.launcher} has no {name} ({table.fields[name]}){reason}; {support}")
    if lines:
        raise RefusedError("\n".join([*lines, "remove it, or choose a launcher that has it"]))


def refuse_combinations(request: JobRequest, inputs: JobInputs) -> None:
    """Raise RefusedError for fields that exclude each other."""
    settings = request.settings
    launch = settings.launch or inputs.rank_starter
    if rank_restarts(request, inputs) and launch not in ("torchrun", "accelerate"):
        raise RefusedError(
            f"restarts {settings.restarts}: launcher {request.launcher} leaves restarts to torchrun or accelerate, "
            f"and the launch is {launch}\nleave restarts out, or add --field launch=torchrun"
        )
    if both := sorted(settings.env.keys() & settings.secrets.keys()):
        raise RefusedError(f"{both[0]} is both a variable of env and a secret\nleave one of them out")
