"""The tasks on registries: scan, publish and verify; and the publisher that `job.run --attach` shares."""

import builtins
from collections.abc import Mapping, Sequence
from json import dumps
from typing import TYPE_CHECKING, Annotated

from rdma_images.cli.output import end_with, show
from rdma_images.cli.task import All, Changes, Json, Onto, Policy, Targets, refuse_beside, task, with_measured_base
from rdma_images.core import exit_codes, files, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import progress
from rdma_images.inputs import project, target_options

if TYPE_CHECKING:
    from rdma_images.publish.evidence.scan_result import Scan
    from rdma_images.publish.evidence.scanner import ScannedImage
    from rdma_images.publish.publisher import Publisher
    from rdma_images.registry.registries import Registry


@task(
    "scan --target efa-pytorch --report trivy.cdx.json --policy policy.yaml",
    "scan --published team-ecr",
)
def scan(
    target: Targets = (),
    all: All = False,
    set: Changes = (),
    published: Annotated[Sequence[str], "REGISTRY | The targets' images in a registry of registries.yaml."] = (),
    report: Annotated[str, "FILE | A CycloneDX document that Trivy or Grype wrote elsewhere, instead of a scan."] = "",
    policy: Policy = "",
    json: Json = False,
) -> None:
    """Judge vulnerabilities that Trivy or Grype finds in images.

    Ends with 1 where the policy refuses one. The result is written to scan.json, which `publish` reads.
    """
    from datetime import UTC, datetime

    from rdma_images.publish.evidence import scan_table
    from rdma_images.publish.evidence.policy import chosen_policy, decide
    from rdma_images.publish.evidence.scan_result import SCAN

    rules, today = chosen_policy(policy), datetime.now(UTC).date()
    images = _chosen_images(target, all, set, published)
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


def _chosen_images(
    targets: Sequence[str], all_rows: bool, changes: Sequence[str], published: Sequence[str]
) -> "Sequence[ScannedImage]":
    """Return the chosen images that were built here, or those in the registries that have them."""
    from rdma_images.plan import planner
    from rdma_images.publish.approved_image import read_build
    from rdma_images.publish.evidence.scanner import ScannedImage
    from rdma_images.publish.published_images import published_images
    from rdma_images.registry import registries

    loaded_project = project.load()
    images = target_options.chosen_images(loaded_project, targets, all_rows, changes)
    if not published:
        return [ScannedImage(build.ref, build.digest, build.image_id) for build in map(read_build, images)]
    all_images = planner.plan(loaded_project.matrix, loaded_project.facts, all_rows=True).images
    return [*published_images(images, all_images, loaded_project.matrix, registries.load().pick(published))]


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
    from rdma_images.plan import planner
    from rdma_images.publish import built_elsewhere, publication_table, publish_images
    from rdma_images.publish.evidence.policy import chosen_policy
    from rdma_images.registry import registries
    from rdma_images.validate import suite

    chosen_registries = registries.load().pick(to)
    choice = {"--target": target, "--all": all, "--set": set, "--onto": onto}
    if join:
        refuse_beside("--join", choice | {"--image": image})
        _join(chosen_registries, publisher(sign), json)
        return
    rules = chosen_policy(policy)
    if image:
        refuse_beside("--image", choice)
        approved = built_elsewhere.approved_images(image, suite.digest(), allow_failed)
    else:
        loaded_project = with_measured_base(project.load(), target, onto)
        images = target_options.chosen_images(loaded_project, target, all, set)
        all_images = planner.plan(loaded_project.matrix, loaded_project.facts, all_rows=True).images
        approved = publish_images.approved_images(
            images, all_images, loaded_project.matrix, suite.digest(), allow_failed
        )
    approved = publish_images.with_decisions(approved, rules)
    outcomes = publish_images.publish(approved, chosen_registries, publisher(sign, stargz))
    show(publication_table.as_json(outcomes) if json else publication_table.publish_text(outcomes))
    end_with(exit_codes.FAILED if any(outcome.error for outcome in outcomes) else 0)


def _join(chosen_registries: "Mapping[str, Registry]", publisher: "Publisher", json: bool) -> None:
    """Join the platforms of all images into one index each, and print what was written."""
    from rdma_images.publish import platform_index, publication_table

    loaded_project = project.load()
    images = target_options.chosen_images(loaded_project, None, True, None)
    results = list(platform_index.join(images, loaded_project.matrix, chosen_registries, publisher))
    show(publication_table.as_json(results) if json else publication_table.join_text(results))
    end_with(exit_codes.FAILED if any(result.error for result in results) else 0)


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
