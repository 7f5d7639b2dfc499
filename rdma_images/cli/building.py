"""The tasks that build and validate images: build, validate, report."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.verb import CHOICE, JSON, MANY, ONTO, REHEARSE, verb, with_measured_base
from rdma_images.core import exit_codes
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import progress
from rdma_images.inputs import project, target_options

if TYPE_CHECKING:  # importing it takes 0.05 s, which a plan does not need
    from rdma_images.inspection.report import Report


@verb(
    "build --target efa-pytorch --rehearse",
    "build --target efa-pytorch --onto pytorch/pytorch@sha256:…",
    help=CHOICE
    | ONTO
    | REHEARSE
    | {
        "no-validate": "Only build.",
        "builder": "A buildx builder, on Kubernetes for example; without it the engine's own.",
        "compression": "Compression of the layers: zstd (default), or gzip for registries that need it.",
        "cache-from": "A registry cache to read, in buildx's notation; {image} is the image's id. May be repeated.",
        "cache-to": "A registry cache to write, likewise; must contain {image} where several images are built.",
        "cache-layers": "Where wheel layers are taken from and sent to: HOST/REPOSITORY, or a name in registries.yaml.",
    }
    | JSON,
    iterable=(*MANY, "cache_from", "cache_to"),
)
def build(
    _: Context,
    target: list[str] | None = None,
    all: bool = False,
    set: list[str] | None = None,
    onto: str = "",
    rehearse: bool = False,
    no_validate: bool = False,
    builder: str = "",
    compression: str = "zstd",
    cache_from: list[str] | None = None,
    cache_to: list[str] | None = None,
    cache_layers: str = "",
    json: bool = False,
) -> None:
    """Build images and validate them.

    An image whose inputs are unchanged is up to date, and is not built again.
    """
    from rdma_images.build import build_images, run_bake
    from rdma_images.report import build_summary, report_table

    loaded_project = with_measured_base(project.load(), target, onto)
    layers = None
    if cache_layers:
        from rdma_images.publish.destination import layers_repository

        layers = layers_repository(cache_layers)
    options = run_bake.options(rehearse, builder, compression, cache_from, cache_to, layers)
    choice = build_images.Choice(target, all, set)
    outcome = build_images.build(loaded_project, choice, options, not no_validate, progress)
    for image_report in outcome.reports:
        if not image_report.passed:
            show(report_table(image_report), file=sys.stderr)
    show(
        build_summary.as_json(outcome.builds, outcome.reports)
        if json
        else build_summary.summary_text(outcome.builds, outcome.reports, outcome.images)
    )
    _exit_on_failure(outcome.reports)


@verb(
    "validate --target efa-pytorch",
    "validate --image nvcr.io/nvidia/pytorch:25.10-py3",
    "validate --target efa-pytorch --instance p5.48xlarge",
    "validate --host kubectl://pod?namespace=ml",
    help=CHOICE
    | ONTO
    | {
        "image": "Any image in the engine, also one that was not built here.",
        "tier": "static (default), device (default with --host), gpu, datapath; may be repeated.",
        "host": "A pod or machine to measure: kubectl://pod, ssh://name or local://, as testinfra writes it.",
        "fabric": "Say which network NCCL would use on efa, erdma, ib or none; otherwise on what the image is for.",
        "instance": "Say it for this instance type, such as p5.48xlarge or ecs.ebmgn8v.48xlarge.",
        "list": "Only list the checks that each chosen target's image gets, by folder of validators/, and why.",
        "again": "Measure anew, also where the report of an unchanged image is kept.",
        "verbose": "Also show notes, and every check in a line.",
    }
    | JSON,
    iterable=(*MANY, "image", "tier"),
)
def validate(
    _: Context,
    target: list[str] | None = None,
    all: bool = False,
    set: list[str] | None = None,
    onto: str = "",
    image: list[str] | None = None,
    tier: list[str] | None = None,
    host: str = "",
    fabric: str = "",
    instance: str = "",
    list: bool = False,
    again: bool = False,
    verbose: bool = False,
    json: bool = False,
) -> None:
    """Check images from the inside.

    Measures an image, a pod or a machine, and checks what must hold.
    """
    from rdma_images import chain, engine
    from rdma_images.report import report_json, report_table
    from rdma_images.validate import check_list, validation

    chain.requested_fabric(fabric, instance)  # a wrong name is refused before anything is looked for
    tiers = validation.parse_tiers(tier or (["device"] if host else None))
    choice: dict[str, object] = {"--target": target, "--all": all, "--set": set, "--onto": onto}
    if list:
        _refuse_beside("--list", {"--host": host, "--image": image, "--fabric": fabric, "--instance": instance})
        loaded_project = with_measured_base(project.load(), target, onto)
        chosen = target_options.chosen_images(loaded_project, target, all, set)
        listed = validation.list_all(chosen, validation.parse_tiers(tier) if tier else None)
        show(check_list.as_json(listed) if json else check_list.text(listed))
        return
    if image:
        _refuse_beside("--image", choice)
    if image or (host and not any(choice.values())):
        candidates = tuple(map(validation.ValidationCandidate, dict.fromkeys(image or [""])))
    else:
        loaded_project = with_measured_base(project.load(), target, onto)
        candidates = validation.planned_candidates(target_options.chosen_images(loaded_project, target, all, set))
    running = None if host else engine.ensure(progress)
    reports = []
    for image_report in validation.validate_all(
        candidates, running, tiers, host or None, progress, fabric, instance, again
    ):
        show(report_json(image_report) if json else report_table(image_report, verbose))
        reports.append(image_report)
    _exit_on_failure(reports)


def _refuse_beside(option: str, others: Mapping[str, object]) -> None:
    """Raise RefusedError where one of the other options is given that would have no effect beside this one."""
    if given := ", ".join(name for name, value in others.items() if value):
        raise RefusedError(f"{option} and {given} do not go together\nleave one out")


@verb(
    "report",
    "report --markdown",
    help={
        "no-open": "Only write the page; otherwise it is opened in a browser, where there is one.",
        "markdown": "Print what was built and published as Markdown, for the summary of a CI job.",
    },
)
def report(_: Context, no_open: bool = False, markdown: bool = False) -> None:
    """Write one page with every report: build/report.html."""
    from rdma_images import report

    if markdown:
        from rdma_images.ci import job_summary

        show(job_summary.summary())
        return
    page = report.write_page()
    show(str(page))
    if not no_open and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(page.as_uri())


def _exit_on_failure(reports: "Sequence[Report]") -> None:
    """End with 1 where a check of severity error failed, else with 3 where one was not measured."""
    if any(image_report.failed for image_report in reports):
        raise Exit(code=exit_codes.NO)
    if any(image_report.unmeasured for image_report in reports):
        raise Exit(code=exit_codes.UNKNOWN)
