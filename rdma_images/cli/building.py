"""The tasks that build, validate and run images: build, validate, report, run."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from rdma_images.cli.output import end_with, show
from rdma_images.cli.parsing import after_dashes
from rdma_images.cli.task import All, Changes, Json, Onto, Rehearse, Targets, load_project, refuse_beside, task
from rdma_images.core import exit_codes
from rdma_images.core.compression import parse_compression
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import progress
from rdma_images.inputs import target_options

if TYPE_CHECKING:  # importing it takes 0.05 s, which a plan does not need
    from rdma_images.inspection.report import Report


@task(
    "build --target efa-pytorch --rehearse",
    "build --target efa-pytorch --set nccl=2.32.3 --cache-layers team-ecr",
    "build --target efa-pytorch --onto pytorch/pytorch@sha256:…",
)
def build(
    target: Targets = (),
    all: All = False,
    set: Changes = (),
    onto: Onto = "",
    rehearse: Rehearse = False,
    no_validate: Annotated[bool, "Only build."] = False,
    builder: Annotated[str, "NAME | A buildx builder, on Kubernetes for example; by default the engine's own."] = "",
    compression: Annotated[str, "zstd|gzip | Of the layers; by default zstd. Some registries need gzip."] = "zstd",
    cache_from: Annotated[Sequence[str], "CACHE | A cache to read, as buildx writes it; {image}: the image's id."] = (),
    cache_to: Annotated[Sequence[str], "CACHE | A cache to write; with {image} where several images are built."] = (),
    cache_layers: Annotated[str, "NAME | Where to keep wheel layers: HOST/REPOSITORY, or one of registries.yaml."] = "",
    json: Json = False,
) -> None:
    """Build images and validate them.

    An image whose inputs are unchanged is up to date, and is not built again.
    """
    from rdma_images.build import build_images, run_bake
    from rdma_images.publish.destination import layers_repository
    from rdma_images.report import build_summary, report_table

    loaded_project = load_project(target, onto)
    layers = layers_repository(cache_layers) if cache_layers else None
    options = run_bake.BuildOptions(
        rehearse, builder or None, parse_compression(compression), tuple(cache_from), tuple(cache_to), layers
    )
    choice = build_images.Choice(target, all, set)
    outcome = build_images.build(loaded_project, choice, options, not no_validate, progress)
    builds, reports, images = outcome.builds, outcome.reports, outcome.images
    for image_report in reports:
        if not image_report.passed:
            show(report_table(image_report), file=sys.stderr)
    show(build_summary.as_json(builds, reports) if json else build_summary.summary_text(builds, reports, images))
    _exit_on_failure(reports)


@task(
    "validate --target efa-pytorch",
    "validate --image nvcr.io/nvidia/pytorch:25.10-py3 --fabric efa",
    "validate --list --target efa-pytorch",
    "validate --target efa-pytorch --instance p5.48xlarge",
    "validate --host kubectl://pod?namespace=ml",
)
def validate(
    target: Targets = (),
    all: All = False,
    set: Changes = (),
    onto: Onto = "",
    image: Annotated[Sequence[str], "Any image in the engine, also one that was not built here."] = (),
    tier: Annotated[Sequence[str], "static|device|gpu|datapath | By default static, or device with --host."] = (),
    host: Annotated[str, "A pod or machine to measure: kubectl://pod, ssh://name or local://."] = "",
    fabric: Annotated[str, "efa|erdma|ib|none | Judge for this network instead of the image's own."] = "",
    instance: Annotated[str, "TYPE | Judge for this instance type, such as p5.48xlarge."] = "",
    list: Annotated[bool, "Only list the checks of each image, and why it gets them."] = False,
    again: Annotated[bool, "Measure anew, also where the report of an unchanged image is kept."] = False,
    verbose: Annotated[bool, "Also show notes, and every check in a line."] = False,
    json: Json = False,
) -> None:
    """Check images from the inside.

    Measures an image, a pod or a machine, and checks what must hold. A check of the tier `static` needs an engine only,
    `device` the machine, `gpu` a GPU, and `datapath` two virtual machines, which move data with the image's libraries.
    """
    from rdma_images import chain, engine
    from rdma_images.report import report_json, report_table
    from rdma_images.validate import candidates, check_list, suite, validate_image

    chain.requested_fabric(fabric, instance)  # a wrong name is refused before anything is looked for
    tiers = candidates.parse_tiers(tier or (["device"] if host else None))
    choice = {"--target": target, "--all": all, "--set": set, "--onto": onto}
    if list:
        refuse_beside("--list", {"--host": host, "--image": image, "--fabric": fabric, "--instance": instance})
    if image:
        refuse_beside("--image", choice)
    is_planned = any(choice.values()) or not (image or host)
    planned = target_options.chosen_images(load_project(target, onto), target, all, set) if is_planned else None
    if list:
        listed = {row.id: suite.list_checks(row, tiers if tier else candidates.TIERS) for row in planned or ()}
        show(check_list.as_json(listed) if json else check_list.check_list_text(listed))
        return
    subjects = candidates.chosen_candidates(planned, image, host)
    running = None if host else engine.ensure(progress)
    reports = []
    scenario = validate_image.FabricScenario(fabric, instance)
    for row in subjects:
        image_report = validate_image.validate(
            row.ref, running, row.image, row.build, tiers, host or None, again, progress, scenario
        )
        show(report_json(image_report) if json else report_table(image_report, verbose))
        reports.append(image_report)
    _exit_on_failure(reports)


def _exit_on_failure(reports: "Sequence[Report]") -> None:
    """End with 1 where a check of severity error failed, else with 3 where one was not measured."""
    end_with(exit_codes.FAILED if any(image_report.failed for image_report in reports) else 0)
    end_with(exit_codes.UNKNOWN if any(image_report.unmeasured for image_report in reports) else 0)


@task("report")
def report() -> None:
    """Write one page with every report: build/report.html."""
    from rdma_images import report

    show(str(report.write_page()))


@task(
    "run --target efa-pytorch --mount ./src:/src:ro --env HF_TOKEN -- torchrun /src/train.py",
    "run --target efa-pytorch --shell",
    "run --image nvcr.io/nvidia/pytorch:25.10-py3 -- env",
)
def run(
    target: Annotated[str, "The target whose image to start; by default the only one of matrix.yaml."] = "",
    set: Annotated[Sequence[str], "AXIS=VALUE | The image that was built with it."] = (),
    onto: Onto = "",
    image: Annotated[str, "Any image in the engine, also one that was not built here."] = "",
    mount: Annotated[Sequence[str], "HOST:CONTAINER[:ro] | A file or folder of this machine."] = (),
    env: Annotated[Sequence[str], "NAME[=VALUE] | A variable; without =VALUE this shell's, on no command line."] = (),
    gpus: Annotated[str, "all, none, how many, or device=0,1; by default all that there are."] = "",
    device: Annotated[Sequence[str], "A device of this machine, e.g. /dev/fuse."] = (),
    shell: Annotated[bool, "Open bash, or sh where there is none, in place of the image's command."] = False,
) -> None:
    """Run a command in an image that was built, or open a shell.

    The command comes after --. It gets what `describe` says that the image needs, as far as this machine has it, and
    standard input. Its exit code is the task's, signals reach it, and its container is removed afterwards.
    """
    from rdma_images import engine, facts
    from rdma_images.build import build_record, container_run
    from rdma_images.engine import docker_command

    words = after_dashes(sys.argv)
    if shell and words:
        raise RefusedError(f"--shell takes no command, and got {words[0]}\nleave out --shell, or the command")
    build, build_command = None, ""
    if image:
        refuse_beside("--image", {"--target": target, "--set": set, "--onto": onto})
    else:
        loaded_project = load_project([target] if target else (), onto)
        build, build_command = build_record.find_build(loaded_project, target, set)
    running = engine.ensure(progress)
    ref = docker_command.build_reference(build, running, build_command, progress) if build else image
    options = container_run.ContainerOptions(mount, env, gpus, device, shell=shell)
    container_run.run_image(running, ref, words, options, facts.load(), progress)
