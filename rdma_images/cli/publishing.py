"""The tasks on registries: publish, verify, reproduce; and the publisher that ci.join shares."""

import builtins
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.verb import CHOICE, JSON, MANY, ONTO, POLICY, PUBLISHING, verb, with_measured_base
from rdma_images.core import files
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import progress
from rdma_images.selection import project, target_options

if TYPE_CHECKING:
    from rdma_images.publish.conversion import Converter
    from rdma_images.publish.send import Publisher


@verb(
    "publish --target efa-pytorch --to team-ecr",
    "publish --image team/training:2026-11 --to team-ecr",
    help=CHOICE
    | ONTO
    | PUBLISHING
    | {"image": "An image of the engine that was built elsewhere and passed `validate --image`; may be repeated."}
    | {"lazy": "Publish each image once more, for nodes that read it in part with this snapshotter: stargz or soci."}
    | {"allow-red": "Publish despite this failed check, by its id; recorded. May be given more than once."}
    | POLICY
    | JSON,
    iterable=(*MANY, "image", "to", "allow_red"),
)
def publish(
    _: Context,
    target: list[str] | None = None,
    all: bool = False,
    set: list[str] | None = None,
    onto: str = "",
    image: list[str] | None = None,
    to: list[str] | None = None,
    allow_red: list[str] | None = None,
    policy: str = "",
    sign: str = "",
    lazy: str = "",
    json: bool = False,
) -> None:
    """Push validated images with their evidence to registries.

    Sends only what a registry does not have.
    """
    from rdma_images.plan import planner
    from rdma_images.publish import built_elsewhere, publication_table, publish_images
    from rdma_images.registry import registries
    from rdma_images.scan.policy import chosen_policy
    from rdma_images.validate import suite

    chosen_registries = registries.load().pick(to or ())
    rules = chosen_policy(policy)
    converter = _converter(lazy)
    if image:
        if target or all or set or onto:
            raise RefusedError("--image names the image by itself\nleave out --target, --all, --set and --onto")
        elsewhere = built_elsewhere.approved_images(image, suite.digest(), allow_red or ())
        approved = publish_images.with_decisions(elsewhere, rules)
    else:
        loaded_project = with_measured_base(project.load(), target, onto)
        images = target_options.chosen_images(loaded_project, target, all, set)
        all_images = planner.plan(loaded_project.matrix, loaded_project.facts, all_rows=True).images
        approved = publish_images.approved_images(
            images, all_images, loaded_project.matrix, suite.digest(), allow_red or (), rules
        )
    outcomes = publish_images.publish(approved, chosen_registries, publisher(sign, converter))
    show(publication_table.as_json(outcomes) if json else publication_table.publish_text(outcomes))
    if any(outcome.error for outcome in outcomes):
        raise Exit(code=1)


@verb(
    "verify --image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/efa-pytorch:2.15.0 --key cosign.pub",
    help={
        "image": "host/repository:tag or host/repository@sha256:…, in any registry.",
        "key": "The public key, or a key service's reference, of the signature that it must have.",
        "identity": "The signer of its keyless signature, as a regular expression; with --issuer.",
        "issuer": "The issuer of that identity, as https://token.actions.githubusercontent.com.",
        "trusted_root": "A trusted_root.json with the keys of a Sigstore of your own, for --identity.",
        "policy": "A policy.yaml, whose `origin` says which builder, source and inputs its provenance must name, "
        "and who must have signed it.",
    }
    | JSON,
)
def verify(
    _: Context,
    image: str,
    key: str = "",
    identity: str = "",
    issuer: str = "",
    trusted_root: str = "",
    policy: str = "",
    json: bool = False,
) -> None:
    """Check a published image and its evidence.

    Reads its signature, its report and its provenance.
    """
    from rdma_images.publish import keys, publication_table
    from rdma_images.publish.verify import verify as verify_image
    from rdma_images.registry import reference, registries
    from rdma_images.scan.policy import load_policy

    origin = load_policy(files.expand_user(policy)).require_origin() if policy else None
    if origin and (origin.identity or origin.issuer):
        if key or identity or issuer:
            raise RefusedError(f"{policy} names who must have signed\nleave out --key, --identity and --issuer")
        identity, issuer = origin.identity, origin.issuer
    trust = keys.parse_trust(key, identity, issuer, trusted_root)
    host = reference.parse_reference(image).host
    verifications = verify_image(image, registries.load_if_present().for_host(host), trust, progress, origin)
    show(publication_table.as_json(verifications) if json else publication_table.verify_text(verifications))
    if not builtins.all(verification.holds for verification in verifications):
        raise Exit(code=1)


@verb(
    "reproduce 123456789012.dkr.ecr.eu-west-1.amazonaws.com/efa-pytorch@sha256:…",
    positional=["ref"],
    help={"ref": "A published image: host/repository@sha256:…, or with a tag.", **JSON},
)
def reproduce(_: Context, ref: str, json: bool = False) -> None:
    """Build a published image again, and compare the two.

    What was built is read from its provenance. Every step runs again, in this machine's engine; no image there changes.
    Exit code 0: the digest is the same; 1: it is not, each difference is named by layer and file; or the build fails.
    """
    from rdma_images import engine
    from rdma_images.publish import publication_table, published_images
    from rdma_images.publish import reproduce as rebuild
    from rdma_images.registry import reference, registries

    registry = registries.load_if_present().for_host(reference.parse_reference(ref).host)
    published = published_images.read_published(ref, registry)
    evidence = rebuild.read_evidence(published)
    rebuild.require_same_origin(published, evidence)
    loaded_project = with_measured_base(project.load(), [evidence.target], evidence.onto)
    outcome = rebuild.reproduce(published, evidence, loaded_project, engine.ensure(progress), progress)
    render = publication_table.reproduction_json if json else publication_table.reproduction_text
    show(render(outcome))
    if not outcome.is_equal:
        raise Exit(code=1)


def _converter(lazy: str) -> "Converter | None":
    """Return what converts images as `--lazy` names it.

    Returns:
        None for an empty word.

    Raises:
        RefusedError: `lazy` is another word.
    """
    from rdma_images.publish import soci, stargz

    if lazy not in ("", "soci", "stargz"):
        raise RefusedError(f"--lazy {lazy} is not known\nwrite --lazy stargz or --lazy soci; docs/guides/lazy-pulls.md")
    if lazy == "stargz":
        return stargz.StargzConverter()
    return soci.find_program() if lazy else None


def publisher(sign: str, converter: "Converter | None" = None) -> "Publisher":
    """Return what publishing needs here; the engine is looked for with the first image sent."""
    from functools import cache

    from rdma_images import engine
    from rdma_images.publish import keys, send
    from rdma_images.publish.push_display import progress_display

    return send.Publisher(
        cache(lambda: engine.ensure(progress)), progress_display(), keys.parse_signer(sign), converter=converter
    )
