"""The tasks before a build: plan, describe, sources, lock, render."""

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from json import dumps
from typing import Annotated

from rdma_images.cli.output import end_with, show
from rdma_images.cli.task import All, Changes, Json, Onto, Rehearse, Targets, load_project, task
from rdma_images.core import exit_codes, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.core.progress import progress
from rdma_images.inputs import project, target_options


@task(
    "plan --all",
    "plan --target efa-pytorch --set nccl=2.32.3",
    "plan --instance p5.48xlarge",
    "plan --target efa-pytorch --solve",
)
def plan(
    target: Targets = (),
    all: All = False,
    set: Changes = (),
    onto: Onto = "",
    rehearse: Rehearse = False,
    instance: Annotated[str, "TYPE | What the images have to run on; without --target, only those that do."] = "",
    solve: Annotated[bool, "Find a torch and base for which all packages of --target have wheels."] = False,
    json: Json = False,
) -> None:
    """Show what would be built, and what is refused and why.

    Downloads nothing, except that an image named by --onto is pulled and measured. --solve, and packages added with
    --onto, query the package index. Ends with 2 where a combination is refused.
    """
    from rdma_images.inputs import locked_image
    from rdma_images.plan import instance_fit, plan_table

    loaded_project = load_project(target, onto)
    if solve:
        set = _solve(loaded_project, target, all or bool(set))
    image_plan = target_options.chosen_plan(loaded_project, target, all, set, rehearse)
    changed = tuple(locked_image.with_package_changes(image, loaded_project, progress) for image in image_plan.images)
    image_plan, misfits = replace(image_plan, images=changed), list[str]()
    if instance:
        image_plan, misfits = instance_fit.restrict_plan(image_plan, instance, bool(target), loaded_project.facts)
    problems = [*_problems(image_plan.images), *misfits]
    if json:
        show(plan_table.as_json(image_plan, paths.overrides(), problems))
    else:
        show(plan_table.table(image_plan), *_notes(image_plan.images, loaded_project))
        if instance and not problems:
            show("", instance_fit.description(instance, loaded_project.facts))
    if problems and not json:
        raise RefusedError("\n".join(problems))
    end_with(exit_codes.REFUSED if image_plan.refusals or problems else 0)


def _solve(loaded_project: project.Project, targets: Sequence[str], with_more: bool) -> list[str]:
    """Say the torch and base that fit a target's packages, and return those that differ."""
    from rdma_images.inputs import solve

    if with_more or len(targets) != 1:
        raise RefusedError("--solve is for one target\nname it with --target, without --all and --set")
    solution = solve.solve_target(
        loaded_project.matrix, targets[0], loaded_project.facts, loaded_project.mirrors, progress
    )
    changes = [f"{axis}={value}" for axis, value in solution.changes.items()]
    words = " ".join(f"--set {change}" for change in changes)
    progress(f"solved: {words}, because {solution.reason}" if changes else "solved: the row of matrix.yaml works")
    return changes


def _problems(images: Iterable[Image]) -> list[str]:
    """Return what keeps images from being built: missing templates and files, locks that do not fit."""
    from rdma_images.inputs import lock
    from rdma_images.plan import target_files

    problems = []
    for image in images:
        problems += [target_files.template_problem(image), target_files.file_problem(image)]
        problems += [lock.problem(image)] if image.python_packages else []
    return list(dict.fromkeys(filter(None, problems)))


def _notes(images: Sequence[Image], current: project.Project) -> list[str]:
    """Return notes on the table: of versions and variables, and templates of the user's own."""
    from rdma_images.plan import additions, rules

    notes = [note for image in images for note in (*rules.known_faults(image, current.facts), *additions.notes(image))]
    if overrides := paths.overrides():
        notes.append(f"own, in place of the tool's: {', '.join(overrides)}")
    return list(dict.fromkeys(notes))


@task("describe --target efa-pytorch")
def describe(target: Targets = (), all: All = False, set: Changes = (), onto: Onto = "", json: Json = False) -> None:
    """Show what is in the images and how to run them.

    Also shows how to run an image on a machine without its fabric.
    """
    from rdma_images.build import describe

    loaded_project = load_project(target, onto)
    images = target_options.chosen_images(loaded_project, target, all, set)
    show(describe.as_json(images) if json else describe.describe_images(images, loaded_project.facts))


@task("sources --target efa-pytorch")
def sources(
    target: Targets = (),
    all: All = False,
    set: Changes = (),
    onto: Onto = "",
    rehearse: Rehearse = False,
    json: Json = False,
) -> None:
    """Show each download, its pin, and whether its source answers."""
    from rdma_images.inputs import availability, sources

    loaded_project = load_project(target, onto)
    images = target_options.chosen_images(loaded_project, target, all, set, rehearse)
    all_sources = [source for image in images for source in sources.sources(image, loaded_project.facts)]
    supplies = availability.find_supplies(all_sources, loaded_project.mirrors, rehearse)
    if json or builtins.all(source.reachable for source in supplies):
        show(dumps([asdict(supply) for supply in supplies], indent=2) if json else availability.supply_table(supplies))
    availability.require_reachable(supplies)  # its error shows the table


@task("lock --target efa-pytorch", "lock --all --upgrade", "lock --all --check")
def lock(
    target: Targets = (),
    all: All = False,
    set: Changes = (),
    onto: Onto = "",
    upgrade: Annotated[bool, "Resolve again, to the newest versions."] = False,
    check: Annotated[bool, "Only fail where a build to ship needs a pin that is missing; uses no network."] = False,
    json: Json = False,
) -> None:
    """Pin every download by its digest, in locks/.

    Wheels, pulled bases and tarballs, as far as this machine reaches their sources.
    """
    from rdma_images.inputs import lock
    from rdma_images.maintain import relock

    loaded_project = load_project(target, onto, measures=not check)
    images = target_options.chosen_images(loaded_project, target, all, set)
    if check:
        from rdma_images.ci import select

        scope = [f"--target {name}" for name in target] + ["--all"] * (all or not target)
        scope += [*(f"--set {pair}" for pair in set), *(f"--onto {ref}" for ref in [onto] if ref)]
        select.require_locks(images, loaded_project.facts, loaded_project.mirrors, " ".join(scope))
        return
    outcomes = relock.relock_images(images, loaded_project.facts, loaded_project.mirrors, upgrade, progress)
    lock.remove_superseded(images, loaded_project, progress)
    show(dumps(list(map(asdict, outcomes)), indent=2) if json else relock.relock_table(outcomes))
    end_with(exit_codes.FAILED if any(locked.outcome == "failed" for locked in outcomes) else 0)


@task("render --target efa-pytorch --rehearse")
def render(
    target: Targets = (), all: All = False, set: Changes = (), onto: Onto = "", rehearse: Rehearse = False
) -> None:
    """Write the Dockerfiles, and print the path of each."""
    from rdma_images.build import build_spec

    loaded_project = load_project(target, onto)
    images = target_options.chosen_images(loaded_project, target, all, set, rehearse)
    specs = [build_spec.build_spec(image, loaded_project, rehearse, progress=progress) for image in images]
    show(*(str(spec.dockerfile) for spec in specs))
