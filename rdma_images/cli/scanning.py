"""The task that looks for vulnerabilities in images: scan."""

from collections.abc import Callable, Iterator, Sequence
from json import dumps
from typing import TYPE_CHECKING, NamedTuple

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.verb import CHOICE, JSON, MANY, POLICY, verb
from rdma_images.core import files, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import progress
from rdma_images.selection import project, target_options

if TYPE_CHECKING:
    from rdma_images.core.image import Image
    from rdma_images.inspection.report import Report
    from rdma_images.registry.registries import Registry
    from rdma_images.scan.decisions import Decision
    from rdma_images.scan.read_reports import ScannedImage
    from rdma_images.scan.scan_result import Scan


class _Candidate(NamedTuple):
    """An image to scan."""

    image_id: str  # of an image that was built here; "" for one in a registry
    target: str
    ref: str
    subject: "ScannedImage"
    report: "Callable[[], Report | None]"


@verb(
    "scan --target efa-pytorch --with trivy",
    "scan --target efa-pytorch --report trivy.json",
    "scan --target efa-pytorch --advisories advisories --policy policy.yaml",
    "scan --image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/efa-pytorch:2.15.0 --with grype",
    "scan --published team-ecr --with grype",
    help=CHOICE
    | {
        "image": "An image in a registry instead of a target's, host/repository:tag.",
        "published": "The targets' images in this registry of registries.yaml; may be given more than once.",
        "with": "Run your own scanner: trivy or grype.",
        "report": "Read a scanner's report; once for each page of a registry's answer.",
        "advisories": "A folder of advisories: Debian's security tracker as JSON, OSV files. Needs no scanner.",
        "digest": "The image's digest, for a report that does not say which image it is about.",
    }
    | POLICY
    | JSON,
    iterable=(*MANY, "report", "published"),
)
def scan(
    _: Context,
    target: list[str] | None = None,
    all: bool = False,
    set: list[str] | None = None,
    image: str = "",
    published: list[str] | None = None,
    with_: str = "",
    report: list[str] | None = None,
    advisories: str = "",
    digest: str = "",
    policy: str = "",
    json: bool = False,
) -> None:
    """Find vulnerabilities in images, judged by policy.yaml.

    Ends with 1 where the policy refuses one. `publish` reads what it writes: scan.json and openvex.json.
    """
    from datetime import UTC, datetime

    from rdma_images.scan import scan_table
    from rdma_images.scan.decisions import decide
    from rdma_images.scan.policy import chosen_policy

    if sum(map(bool, (with_, report, advisories))) != 1:
        raise RefusedError("a scan has one source\ngive one of --with PROGRAM, --report FILE and --advisories FOLDER")
    rules, today = chosen_policy(policy), datetime.now(UTC).date()
    warnings = rules.check(today) if rules else []
    candidates = list(_candidates(target, all, set, image, published or ()))
    if report and len(candidates) != 1:
        raise RefusedError(f"--report is about one image, and {len(candidates)} are chosen\nchoose one with --target")
    documents, is_refused = [], False
    for candidate in candidates:
        result = _scan(candidate, with_, report or (), advisories, digest)
        decisions = decide(result, rules, today) if rules else None
        _write(candidate, result, decisions)
        is_refused |= any(decision.outcome == "refused" for decision in decisions or ())
        documents.append(scan_table.as_json(candidate.ref, result, decisions, warnings))
        if not json:
            show(scan_table.scan_text(candidate.ref, result, decisions, warnings))
    if json:
        show(dumps(documents, indent=2))
    if is_refused:
        raise Exit(code=1)


def _scan(candidate: _Candidate, program: str, reports: Sequence[str], advisories: str, digest: str) -> "Scan":
    from rdma_images import engine
    from rdma_images.scan import read_reports
    from rdma_images.scan.advisories import scan_by_advisories

    if advisories:
        measured = candidate.report()
        if measured is None or measured.digest != candidate.subject.digest:
            raise RefusedError(f"{candidate.ref} was never validated\nrun `{paths.COMMAND} validate` for it")
        return scan_by_advisories(files.expand_user(advisories), measured, candidate.subject.digest)
    if program:
        folder = paths.image_folder(candidate.image_id) if candidate.image_id else paths.BUILD / "scans"
        running = engine.ensure(progress) if candidate.image_id else None
        reports = [str(read_reports.run_scanner(program, candidate.ref, running, folder, progress))]
    return read_reports.read_reports([files.expand_user(path) for path in reports], candidate.subject, digest)


def _write(candidate: _Candidate, result: "Scan", decisions: "Sequence[Decision] | None") -> None:
    """Write scan.json, and openvex.json where the policy makes statements on the image."""
    from rdma_images.core import atomic
    from rdma_images.scan import scan_statements
    from rdma_images.scan.scan_result import SCAN

    if not candidate.image_id:
        return
    SCAN.write(candidate.image_id, result)
    document = scan_statements.openvex(candidate.target, result.digest, result, decisions or ())
    path = paths.image_folder(candidate.image_id) / "openvex.json"
    path.unlink(missing_ok=True)
    if document:
        atomic.write(path, dumps(document, indent=2, ensure_ascii=False) + "\n")


def _candidates(
    target: list[str] | None, all_targets: bool, pairs: list[str] | None, ref: str, published: Sequence[str]
) -> Iterator[_Candidate]:
    from rdma_images.plan import planner
    from rdma_images.publish import published_images
    from rdma_images.registry import reference, registries

    if ref and (target or published):
        raise RefusedError("--image is one image\nleave out --target and --published")
    if ref:
        yield _registry_candidate(ref, registries.load_if_present().for_host(reference.parse_reference(ref).host))
        return
    loaded_project = project.load()
    images = target_options.chosen_images(loaded_project, target, all_targets, pairs)
    if published:
        registries_by_name = registries.load().pick(published)
        all_images = planner.plan(loaded_project.matrix, loaded_project.facts, all_rows=True).images
        for name, registry in registries_by_name.items():
            for listed in published_images.published_refs(images, all_images, loaded_project.matrix, {name: registry}):
                yield _registry_candidate(listed, registry)
        return
    yield from map(_built_candidate, images)


def _built_candidate(image: "Image") -> _Candidate:
    """Return an image that was built here."""
    from rdma_images.publish.approved_image import read_build
    from rdma_images.report.report_files import REPORT
    from rdma_images.scan.read_reports import ScannedImage

    build = read_build(image)
    measured = REPORT.read_if_valid(image.id)
    facts = measured.inspection if measured and measured.digest == build.digest else None
    layers = tuple(facts.subject.layers) if facts else ()
    return _Candidate(
        image.id, image.target, build.ref, ScannedImage(build.ref, build.digest, layers), lambda: REPORT.read(image.id)
    )


def _registry_candidate(ref: str, registry: "Registry") -> _Candidate:
    from rdma_images.publish.published_images import read_published
    from rdma_images.scan.read_reports import ScannedImage

    published = read_published(ref, registry)
    subject = ScannedImage(ref, published.digest, published.layers)
    target = published.repository.name.rpartition("/")[2]
    return _Candidate("", target, published.ref, subject, published.report)
