"""The tasks on registries: scan, publish and verify; and the publisher that `job.run --attach` shares."""

import builtins
from collections.abc import Sequence
from json import dumps
from typing import TYPE_CHECKING, Annotated

from rdma_images.cli.output import end_with, show
from rdma_images.cli.task import All, Changes, Json, Onto, Policy, Targets, load_project, refuse_beside, task
from rdma_images.core import exit_codes, files, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import progress
from rdma_images.inputs import target_options

if TYPE_CHECKING:
    from rdma_images.core.image import Image
    from rdma_images.plan.matrix import Matrix
    from rdma_images.publish.evidence.scan_result import Scan
    from rdma_images.publish.evidence.scanner import ScannedImage
    from rdma_images.publish.publisher import Publisher


@task(
    "scan --target efa-pytorch --report trivy.cdx.json --policy policy.yaml",
    "scan --image team/training:2026-11",
    "scan --published team-ecr",
)
def scan(
    target: Targets = (),
    all: All = False,
    set: Changes = (),
    onto: Onto = "",
    image: Annotated[Sequence[str], "An image built elsewhere that passed `validate --image`."] = (),
    published: Annotated[Sequence[str], "REGISTRY | The targets' images in a registry of registries.yaml."] = (),
    report: Annotated[str, "FILE | A CycloneDX document that Trivy or Grype wrote elsewhere, instead of a scan."] = "",
    policy: Policy = "",
    json: Json = False,
) -> None:
    """Judge vulnerabilities that Trivy or Grype finds in images.

    Ends with 1 where the policy refuses one. The result is written to scan.json, which `publish` reads.
    """
    from datetime import UTC, datetime

    from rdma_images.publish import built_elsewhere
    from rdma_images.publish.evidence import scan_table
    from rdma_images.publish.evidence.policy import chosen_policy, decide
    from rdma_images.publish.evidence.scan_result import SCAN
    from rdma_images.publish.evidence.scanner import ScannedImage
    from rdma_images.report.report_files import report_folder

    rules, today = chosen_policy(policy), datetime.now(UTC).date()
    if image:
        others = {"--target": target, "--all": all, "--set": set, "--onto": onto, "--published": published}
        refuse_beside("--image", others)
        images = [ScannedImage(r, built_elsewhere.read_report(r).digest, report_folder(r).name) for r in image]
    else:
        chosen = target_options.chosen_images(load_project(target, onto), target, all, set)
        images = _built_or_published(chosen, published)
    if report and len(images) != 1:
        raise RefusedError(f"--report is about one image, and {len(images)} are chosen\nchoose one with --target")
    documents, is_refused = [], False
    for scanned in images:
        result = _scan(scanned, report)
        decisions = decide(result, rules, today) if rules else None
        if scanned.image_id:
            SCAN.write(scanned.image_id, result)
        is_refused |= any(decision.outcome == "refused" for decision in decisions or ())
        documents.append(scan_table.as_json(scanned.name, result, decisions))
        if not json:
            show(scan_table.scan_text(scanned.name, result, decisions))
    if json:
        show(dumps(documents, indent=2))
    end_with(exit_codes.FAILED if is_refused else 0)


def _scan(image: "ScannedImage", report: str) -> "Scan":
    """Return what a scanner says of an image, or the report of one."""
    from rdma_images import engine
    from rdma_images.publish.evidence import scanner

    if report:
        return scanner.read_report(files.expand_user(report), image)
    folder = paths.image_folder(image.image_id) if image.image_id else paths.BUILD / "scans"
    program = scanner.find_scanner()
    running = engine.ensure(progress) if image.image_id else None
    return scanner.read_report(scanner.run_scanner(program, image, running, folder, progress), image)


def _built_or_published(images: "Sequence[Image]", published: Sequence[str]) -> "list[ScannedImage]":
    """Return images that were built here, or those in the registries that have them."""
    from rdma_images.publish.approved_image import read_build
    from rdma_images.publish.evidence.scanner import ScannedImage
    from rdma_images.publish.published_images import published_images
    from rdma_images.registry import registries

    if not published:
        return [ScannedImage(build.ref, build.digest, build.image_id) for build in map(read_build, images)]
    return [*published_images(images, *_matrix_images(), registries.load().pick(published))]


def _matrix_images() -> "tuple[Sequence[Image], Matrix]":
    """Return the images of matrix.yaml, which decide tags, and the matrix; without what was not measured."""
    from rdma_images.plan import planner

    own = load_project()
    return planner.plan(own.matrix, own.facts, all_rows=True).images, own.matrix


@task(
    "publish --target efa-pytorch --to team-ecr --sign awskms:///alias/images",
    "publish --image team/training:2026-11 --to team-ecr",
    "publish --join --to team-ecr",
)
def publish(
    target: Targets = (),
    all: All = False,
    set: Changes = (),
    onto: Onto = "",
    image: Annotated[Sequence[str], "An image built elsewhere that passed `validate --image`."] = (),
    to: Annotated[Sequence[str], "REGISTRY | A registry of registries.yaml."] = (),
    allow_failed: Annotated[Sequence[str], "CHECK | Publish despite this failed check, which is recorded."] = (),
    policy: Policy = "",
    sign: Annotated[str, "KEY | Sign with cosign: a file, a key service's reference (awskms:///…), or keyless."] = "",
    stargz: Annotated[bool, "Also publish a copy that stargz-snapshotter loads file by file."] = False,
    join: Annotated[bool, "Join the platforms of images that are published already into one index each."] = False,
    json: Json = False,
) -> None:
    """Push validated images with their evidence to registries.

    Sends only what a registry does not have.
    """
    from rdma_images.publish import built_elsewhere, platform_index, publication_table, publish_images
    from rdma_images.publish.evidence.policy import chosen_policy
    from rdma_images.registry import registries
    from rdma_images.validate import suite

    chosen_registries = registries.load().pick(to)
    choice = {"--target": target, "--all": all, "--set": set, "--onto": onto}
    if join:
        ignored = {"--image": image, "--allow-failed": allow_failed, "--policy": policy, "--stargz": stargz}
        refuse_beside("--join", choice | ignored)
        joined = [*platform_index.join(*_matrix_images(), chosen_registries, publisher(sign))]
        show(publication_table.as_json(joined) if json else publication_table.join_text(joined))
        end_with(exit_codes.FAILED if any(result.error for result in joined) else 0)
        return
    rules = chosen_policy(policy)
    if image:
        refuse_beside("--image", choice)
        approved = built_elsewhere.approved_images(image, suite.digest(), allow_failed)
    else:
        images = target_options.chosen_images(load_project(target, onto), target, all, set)
        approved = publish_images.approved_images(images, *_matrix_images(), suite.digest(), allow_failed)
    approved = publish_images.with_decisions(approved, rules)
    outcomes = publish_images.publish(approved, chosen_registries, publisher(sign, stargz))
    show(publication_table.as_json(outcomes) if json else publication_table.publish_text(outcomes))
    end_with(exit_codes.FAILED if any(outcome.error for outcome in outcomes) else 0)


@task(
    "verify --image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/efa-pytorch:2.15.0 --key cosign.pub",
    "verify --image ghcr.io/team/efa-pytorch:2.15.0 --identity '^https://github.com/team/images/' "
    "--issuer https://token.actions.githubusercontent.com",
)
def verify(
    *,
    image: Annotated[str, "HOST/NAME:TAG | The image, in any registry; also as HOST/NAME@sha256:…."],
    key: Annotated[str, "KEY | The public key of its required signature: a file, or a key service's reference."] = "",
    identity: Annotated[str, "REGEX | The signer of its keyless signature; with --issuer."] = "",
    issuer: Annotated[str, "URL | The issuer of that identity, e.g. https://token.actions.githubusercontent.com."] = "",
    json: Json = False,
) -> None:
    """Check a published image and its evidence.

    Reads its signature, its report and its provenance.
    """
    from rdma_images.publish import keys, publication_table
    from rdma_images.publish.verify import verify as verify_image
    from rdma_images.registry import reference, registries

    trust = keys.parse_trust(key, identity, issuer)
    host = reference.parse_reference(image).host
    verifications = verify_image(image, registries.load_if_present().for_host(host), trust, progress)
    show(publication_table.as_json(verifications) if json else publication_table.verify_text(verifications))
    end_with(0 if builtins.all(verification.holds for verification in verifications) else exit_codes.FAILED)


def publisher(sign: str, to_stargz: bool = False) -> "Publisher":
    """Return a publisher; the engine is looked for when the first image is sent."""
    from functools import cache

    from rdma_images import engine
    from rdma_images.publish import keys
    from rdma_images.publish.publisher import Publisher

    return Publisher(cache(lambda: engine.ensure(progress)), progress, keys.parse_signer(sign), to_stargz=to_stargz)
