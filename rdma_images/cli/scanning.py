"""The task that looks for vulnerabilities in images: scan."""

from collections.abc import Iterator, Sequence
from json import dumps
from typing import TYPE_CHECKING, NamedTuple

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.verb import CHOICE, JSON, MANY, POLICY, verb
from rdma_images.core import exit_codes, files, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import progress
from rdma_images.inputs import project, target_options

if TYPE_CHECKING:
    from rdma_images.publish.evidence.scan_result import Scan
    from rdma_images.publish.evidence.scanner import ScannedImage


class _Candidate(NamedTuple):
    """An image to scan; `image_id` is that of one built here, "" for one in a registry."""

    image_id: str
    image: "ScannedImage"


@verb(
    "scan --target efa-pytorch",
    "scan --target efa-pytorch --report trivy.cdx.json --policy policy.yaml",
    "scan --image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/efa-pytorch:2.15.0",
    "scan --published team-ecr",
    help=CHOICE
    | {
        "image": "An image in a registry instead of a target's, host/repository:tag.",
        "published": "The targets' images in this registry of registries.yaml; may be given more than once.",
        "report": "A CycloneDX document that Trivy or Grype wrote elsewhere, instead of a scan.",
    }
    | POLICY
    | JSON,
    iterable=(*MANY, "published"),
)
def scan(
    _: Context,
    target: list[str] | None = None,
    all: bool = False,
    set: list[str] | None = None,
    image: str = "",
    published: list[str] | None = None,
    report: str = "",
    policy: str = "",
    json: bool = False,
) -> None:
    """Judge vulnerabilities that Trivy or Grype finds in images.

    Ends with 1 where the policy refuses one. `publish` reads what it writes: scan.json.
    """
    from datetime import UTC, datetime

    from rdma_images.publish.evidence import scan_table
    from rdma_images.publish.evidence.decisions import decide
    from rdma_images.publish.evidence.policy import chosen_policy
    from rdma_images.publish.evidence.scan_result import SCAN

    rules, today = chosen_policy(policy), datetime.now(UTC).date()
    warnings = rules.check(today) if rules else []
    candidates = list(_candidates(target, all, set, image, published or ()))
    if report and len(candidates) != 1:
        raise RefusedError(f"--report is about one image, and {len(candidates)} are chosen\nchoose one with --target")
    documents, is_refused = [], False
    for candidate in candidates:
        result = _scan(candidate, report)
        decisions = decide(result, rules, today) if rules else None
        if candidate.image_id:
            SCAN.write(candidate.image_id, result)
        is_refused |= any(decision.outcome == "refused" for decision in decisions or ())
        documents.append(scan_table.as_json(candidate.image.name, result, decisions, warnings))
        if not json:
            show(scan_table.scan_text(candidate.image.name, result, decisions, warnings))
    if json:
        show(dumps(documents, indent=2))
    if is_refused:
        raise Exit(code=exit_codes.NO)


def _scan(candidate: _Candidate, report: str) -> "Scan":
    from rdma_images import engine
    from rdma_images.publish.evidence import scanner

    if report:
        return scanner.read_report(files.expand_user(report), candidate.image)
    folder = paths.image_folder(candidate.image_id) if candidate.image_id else paths.BUILD / "scans"
    program = scanner.find_scanner()
    running = engine.ensure(progress) if candidate.image_id else None
    written = scanner.run_scanner(program, candidate.image, running, folder, progress)
    return scanner.read_report(written, candidate.image)


def _candidates(
    target: list[str] | None, all_targets: bool, pairs: list[str] | None, ref: str, published: Sequence[str]
) -> Iterator[_Candidate]:
    from rdma_images.plan import planner
    from rdma_images.publish import published_images
    from rdma_images.publish.approved_image import read_build
    from rdma_images.publish.evidence.scanner import ScannedImage
    from rdma_images.registry import reference, registries

    if ref and (target or published or all_targets or pairs):
        raise RefusedError("--image is one image\nleave out --target, --all, --set and --published")
    if ref:
        yield _Candidate(
            "",
            published_images.find_published(
                ref, registries.load_if_present().for_host(reference.parse_reference(ref).host)
            ),
        )
        return
    loaded_project = project.load()
    images = target_options.chosen_images(loaded_project, target, all_targets, pairs)
    if published:
        registries_by_name = registries.load().pick(published)
        all_images = planner.plan(loaded_project.matrix, loaded_project.facts, all_rows=True).images
        for name, registry in registries_by_name.items():
            for listed in published_images.published_refs(images, all_images, loaded_project.matrix, {name: registry}):
                yield _Candidate("", published_images.find_published(listed, registry))
        return
    for image in images:
        build = read_build(image)
        yield _Candidate(image.id, ScannedImage(build.ref, build.digest))
