"""What would be built: images with every version picked, and refusals with their reasons. Nothing is downloaded."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rdma_images import atomic, axes, paths, rules, running, toolkit
from rdma_images.candidate import Candidate, candidate
from rdma_images.details import detailed
from rdma_images.errors import RefusedError
from rdma_images.facts import Facts
from rdma_images.matrix import Matrix, Row, Target
from rdma_images.model import Image, Plan, Refusal, Requirement
from rdma_images.nearest import nearest
from rdma_images.tag import tag
from rdma_images.versions import major


def plan(
    matrix: Matrix,
    facts: Facts,
    targets: Sequence[str] = (),
    everything: bool = False,
    changes: Mapping[str, str] | None = None,
) -> Plan:
    """The default row of each of `targets` (all of them where none is named), or with `everything` their whole matrix.

    `changes` (axis: value) replace what the rows say; without named targets they reach those targets that have the
    axes. Raises RefusedError for a target, axis or value that is not known.
    """
    matrix.check(facts)
    changes = dict(changes or {})
    for axis, value in changes.items():
        axes.check(axis, value, facts)
    images: dict[str, Image] = {}
    refusals: dict[tuple[str, ...], Refusal] = {}  # by target and values: rows may differ in nothing but what changed
    for name in targets or _with_axes(matrix, changes):
        target = matrix.target(name)
        for row in target.rows() if everything else [target.default]:
            made = candidate(name, target.model_copy(update={"default": row}), facts, changes)
            row_id = (name, *made.axes.values())
            if row_id in refusals:
                continue
            if broken := rules.check(made, facts):
                refusals[row_id] = Refusal(
                    target=name,
                    axes=made.axes,
                    broken=broken,
                    nearest=nearest(made, target, facts, changes, broken),
                    leave_out={axis: changes[axis] for axis in made.foreign if axis in changes},
                )
            else:
                image = _image(made, target, facts)
                images.setdefault(image.id, image)
    return Plan(images=tuple(images.values()), refusals=tuple(refusals.values()))


def write(image: Image) -> Path:
    """Write plan.json of `image` into its folder; returns where it is."""
    path = paths.image_folder(image.id) / "plan.json"
    atomic.write(path, json.dumps(asdict(image), indent=2) + "\n")
    return path


def _with_axes(matrix: Matrix, changes: Row) -> list[str]:
    """The targets that have every axis of `changes`; RefusedError where there is none."""
    able = [name for name, target in matrix.targets.items() if changes.keys() <= axes.complete(target.default).keys()]
    if not able:
        raise RefusedError(f"no target has {' and '.join(changes)} together: name a target to see what it has")
    return able


def _image(made: Candidate, target: Target, facts: Facts) -> Image:
    """A candidate that breaks no rule, with all that later steps need."""
    label = tag(made)
    components = detailed(made, facts)
    devel = toolkit.requirements(made["cuda"], facts) if made["variant"] == "devel" else ()
    return Image(
        id=f"{made.target}-{label}",
        target=made.target,
        tag=label,
        fabric=made.fabric,
        platform="linux/arm64" if made["platform"] == "linux/arm64" else "linux/amd64",
        axes=made.axes,
        components=components,
        python_packages=target.python_packages + devel,
        source_packages=target.source_packages,
        debian_packages=target.debian_packages,
        requirements=tuple(_requirements(made, facts)),
        unknown=rules.unknown(made, facts),
        environment=running.environment(made.axes, made.fabric, components, facts),
        settings=tuple(running.settings(made.fabric, facts)),
        toolkit=toolkit.requirements(made["cuda"], facts) if toolkit.needed(made, facts) else (),
        template=target.template or made.target,
    )


def _requirements(made: Candidate, facts: Facts) -> Iterator[Requirement]:
    """What the host must bring."""
    if "cuda" in made:
        driver = facts.cuda.majors[str(major(made["cuda"]))]
        yield Requirement(
            what="nvidia-driver",
            at_least=driver.driver,
            reason=f"CUDA {major(made['cuda'])} runs on no older driver",
            source=facts.cuda.cite(driver),
        )
