"""The plan: images with all versions picked, refusals with reasons. Downloads nothing."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from rdma_images import components
from rdma_images.components import gpus
from rdma_images.components.cuda import toolkit_requirements
from rdma_images.components.nccl import NAME as NCCL
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import ExistingImage, Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import step_file
from rdma_images.facts import Facts
from rdma_images.plan import additions, axes, image_settings, onto, requirements_file, rules, source_builds
from rdma_images.plan.candidate import Candidate, candidate
from rdma_images.plan.matrix import IMAGE_AXES, Matrix, Row, Target
from rdma_images.plan.nearest import nearest
from rdma_images.plan.refusals import Plan, Refusal

Where = Callable[..., str]  # returns file and line of a part of a target
TAG_WORDS = {"variant": {"devel": "devel"}, "fallback": {"allow": "fallback"}, "platform": {"linux/arm64": "arm64"}}
# What compiles Triton's launcher while a program runs: 79 MB to pull. clang is larger; tcc refuses Python's headers.
COMPILER = ("gcc", "libc6-dev", "libpython3-dev")
MAX_TAG_LENGTH = 128  # characters, and the alphabet below: github.com/distribution/reference, regexp.go
_TAG = re.compile(r"[\w][\w.-]{0,127}", re.ASCII)


def plan(
    matrix: Matrix,
    facts: Facts,
    targets: Sequence[str] = (),
    all_rows: bool = False,
    changes: Mapping[str, str] | None = None,
    measure_base: onto.MeasureBase | None = None,
) -> Plan:
    """Return the plan of the default rows, or with `all_rows` of the whole matrix.

    `changes` (axis: value) replace what the rows say; without named targets they reach those targets that have the
    axes. `measure_base` measures the images that targets are added to, else only earlier measurements count. A target
    without any is left out. Raises RefusedError for that if it is named, and for a target, axis or value not known.
    """
    matrix.check(facts)
    changes = dict(changes or {})
    for axis, value in changes.items():
        axes.require_value(axis, value, facts)
    images: dict[str, Image] = {}
    refusals: dict[tuple[str, ...], Refusal] = {}  # by target and values, since `changes` may make two rows equal
    unmeasured: list[str] = []
    for name in targets or _targets_with_axes(matrix, changes):
        target, base = matrix.target(name), None
        if target.onto:
            base = _measured(name, target.onto, measure_base or onto.find_record, name in targets)
            if base is None:
                unmeasured.append(name)
                continue
            if broken := onto.broken_rules(base, target, facts):
                refusals[name, base.ref] = Refusal(name, {"onto": base.ref}, broken)
                continue
            target = onto.measured_target(target, base, changes, facts)
        for row in target.rows() if all_rows else [target.default]:
            planned = candidate(name, target.model_copy(update={"default": row}), facts, changes)
            row_id = (name, *planned.axes.values())
            if row_id in refusals:
                continue
            result = _plan_row(planned, target, matrix, facts, base, changes)
            if isinstance(result, Refusal):
                refusals[row_id] = result
            else:
                images.setdefault(result.id, result)
    return Plan(tuple(images.values()), tuple(refusals.values()), tuple(unmeasured))


def _measured(name: str, ref: str, measure_base: onto.MeasureBase, is_named: bool) -> ExistingImage | None:
    """Return the image that a target is added to; None if it was not measured. Raises RefusedError if it is named."""
    base = measure_base(ref)
    if base is None and is_named:
        fix = f"run `{COMMAND} plan --target {name} --onto {ref}` first"
        raise RefusedError(f"{name}: {ref} was not measured on this machine\n{fix}")
    return base


def _plan_row(
    planned: Candidate, target: Target, matrix: Matrix, facts: Facts, base: ExistingImage | None, changes: Row
) -> Image | Refusal:
    """Return the image of a candidate, or why it cannot be built."""
    broken, nearest_row = rules.broken_rules(planned, facts), None
    if base and planned[NCCL] == base.nccl:
        broken = tuple(rule for rule in broken if rule.rule not in onto.RULES_ABOUT_WHEELS_TO_INSTALL)
    if broken:
        nearest_row = nearest(planned, target, facts, changes, broken, IMAGE_AXES if base else ())
    else:
        image = _image(planned, target, facts, base, partial(matrix.where, "targets", planned.target))
        broken = (*source_builds.compiler_rules(image, facts), *additions.broken_rules(image, facts))
        if not broken:
            return image
    leave_out = {axis: changes[axis] for axis in planned.foreign if axis in changes}
    return Refusal(planned.target, planned.axes, broken, nearest_row, leave_out)


PLAN = step_file("plan.json", "plan", dict[str, object])


def write(image: Image) -> Path:
    """Write plan.json of `image` into its folder; returns where it is."""
    return PLAN.write(image.id, plan_document(image))


def plan_document(image: Image) -> dict[str, object]:
    """Return the content of plan.json: an image, the details of its components in words."""
    words = {name: {"details": component.details.text_fields()} for name, component in image.components.items()}
    plain = asdict(image)
    return plain | {"components": {name: fields | words[name] for name, fields in plain["components"].items()}}


def _targets_with_axes(matrix: Matrix, changes: Row) -> list[str]:
    """Return the targets that have every axis of `changes`. Raises RefusedError for none."""
    able = [name for name, target in matrix.targets.items() if changes.keys() <= target.complete().keys()]
    if not able:
        raise RefusedError(
            f"no target has every axis of --set: {', '.join(changes)}\nname a target to see which axes it has"
        )
    return able


def _image(planned: Candidate, target: Target, facts: Facts, base: ExistingImage | None, where: Where) -> Image:
    """Return a candidate that breaks no rule, with all that later steps need.

    Args:
        base: What is added to.
        where: Returns file and line of a part of the target.
    """
    measured, default = onto.with_measured(planned, base) if base else planned, target.complete()
    label = tag(measured)
    present_components = [component for component in components.ALL if component.name in planned]
    parts = planned.components
    detailed = {
        component.name: replace(parts[component.name], details=component.details(planned, facts))
        for component in present_components
    }
    asked = requirements_file.read_requirements(target, measured.versions, where)
    image = Image(
        id=f"{planned.target}-{label}",
        target=planned.target,
        tag=label,
        fabric=planned.fabric,
        platform="linux/arm64" if planned["platform"] == "linux/arm64" else "linux/amd64",
        axes=planned.axes,
        changes=tuple(f"{axis}={value}" for axis, value in planned.axes.items() if default.get(axis) != value),
        components={name: detailed[name] for name in parts},
        python_packages=(*asked.packages, *_brought_packages(planned, target, facts)),
        constraints=tuple(asked.constraints),
        hashes=asked.hashes,
        debian_packages=(*target.debian_packages, *(COMPILER if target.compiler else ())),
        requirements=tuple(
            requirement for component in present_components for requirement in component.requirements(planned, facts)
        ),
        unknown=rules.unknown_facts(planned, facts),
        environment=image_settings.image_environment(planned.axes, planned.fabric, detailed, facts),
        run_settings=tuple(image_settings.run_settings(planned.fabric, facts)),
        template=target.template or planned.target,
        stages=target.stages,
        additions=additions.additions(target, base.workdir if base else None),
        checks=target.checks,
        secrets=dict(target.secrets),
    )
    image = _with_source_builds(image, planned, target, facts, where)
    if base:
        return onto.image_onto(image, base)
    return replace(image, limitations=tuple(image_settings.limitations(image, facts)))


def _with_source_builds(image: Image, planned: Candidate, target: Target, facts: Facts, where: Where) -> Image:
    """Return the image with the packages that are compiled for it, how, and with which compiler."""
    sources = source_builds.source_packages(planned, target, facts)
    parts = (component for component in components.ALL if component.name in planned)
    is_compiled = bool(sources) or any(component.is_compiled(planned, facts) for component in parts)
    image = replace(
        image,
        source_packages=sources,
        source_architectures=source_builds.architectures(planned, sources, facts),
        source_builds=source_builds.source_builds(planned, sources, target.package_options, facts, where),
        no_deps=source_builds.no_deps(sources, target, facts),
        toolkit=toolkit_requirements(planned["cuda"], facts) if is_compiled else (),
    )
    source_builds.require_named(image, target.package_options, where)
    return image


def _brought_packages(planned: Candidate, target: Target, facts: Facts) -> Iterator[str]:
    """Yield the requirements of an image's components, and of its devel variant."""
    for component in components.ALL:
        if component.name in planned and (component.is_optional or not target.onto):  # what the fabric needs is there
            yield from component.python_packages(planned, facts)
    if planned["variant"] == "devel":
        yield from toolkit_requirements(planned["cuda"], facts)


def tag(planned: Candidate) -> str:
    """Return the tag of a candidate: all versions in one order, unique for each image.

    As in 2.15.0-cu13.2-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.13-debian13; properties that are not the default come last.
    Raises RefusedError.
    """
    named = [component for component in components.IN_TAGS if component.name in planned]
    # The target's subject comes first, without its name; a second one, as nccl-tests beside torch, has its name.
    parts = [
        f"{component.tag or (component.name if number else '')}{planned[component.name]}"
        if component.role == "subject"
        else f"{component.tag}{planned[component.name]}"
        for number, component in enumerate(named)
    ]
    parts += [words[planned[axis]] for axis, words in TAG_WORDS.items() if planned[axis] in words]
    if planned.versions.get("gpu", gpus.ALL_GPUS) != gpus.ALL_GPUS:
        parts.append(planned["gpu"])
    text = "-".join(parts)
    if not _TAG.fullmatch(text):
        raise RefusedError(
            f"{text!r} is not a valid tag\na tag has at most {MAX_TAG_LENGTH} letters, digits, '_', '.' and '-'"
        )
    return text
