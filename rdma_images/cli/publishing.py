"""The tasks on registries: publish and verify; and the publisher that `job.run --attach` shares."""

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from rdma_images.cli.output import show
from rdma_images.cli.verb import CHOICE, JSON, MANY, ONTO, POLICY, PUBLISHING, verb, with_measured_base
from rdma_images.core import exit_codes
from rdma_images.core.errors import RefusedError
from rdma_images.core.progress import progress
from rdma_images.inputs import project, target_options

if TYPE_CHECKING:
    from rdma_images.publish.publisher import Publisher
    from rdma_images.registry.registries import Registry


@verb(
    "publish --target efa-pytorch --to team-ecr",
    "publish --image team/training:2026-11 --to team-ecr",
    "publish --join --to team-ecr",
    help=CHOICE
    | ONTO
    | PUBLISHING
    | {"image": "An image of the engine that was built elsewhere and passed `validate --image`; may be repeated."}
    | {"stargz": "Publish each image once more, for nodes whose stargz-snapshotter reads it in part."}
    | {"join": "Join the platforms of images that are published already into one index each."}
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
    stargz: bool = False,
    join: bool = False,
    json: bool = False,
) -> None:
    """Push validated images with their evidence to registries.

    Sends only what a registry does not have.
    """
    from rdma_images.plan import planner
    from rdma_images.publish import built_elsewhere, publication_table, publish_images
    from rdma_images.publish.evidence.policy import chosen_policy
    from rdma_images.registry import registries
    from rdma_images.validate import suite

    chosen_registries = registries.load().pick(to or ())
    if join:
        if target or all or set or onto or image:
            raise RefusedError("--join is about every image of the matrix\nleave out the options that choose images")
        _join(chosen_registries, publisher(sign), json)
        return
    rules = chosen_policy(policy)
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
    outcomes = publish_images.publish(approved, chosen_registries, publisher(sign, stargz))
    show(publication_table.as_json(outcomes) if json else publication_table.publish_text(outcomes))
    if any(outcome.error for outcome in outcomes):
        raise Exit(code=exit_codes.NO)


def _join(chosen_registries: "Mapping[str, Registry]", publisher: "Publisher", json: bool) -> None:
    """Join the platforms of all images into one index each, and print what was written."""
    from rdma_images.publish import platform_index, publication_table

    loaded_project = project.load()
    images = target_options.chosen_images(loaded_project, None, True, None)
    results = list(platform_index.join(images, loaded_project.matrix, chosen_registries, publisher))
    show(publication_table.as_json(results) if json else publication_table.join_text(results))
    if any(result.error for result in results):
        raise Exit(code=exit_codes.NO)


@verb(
    "verify --image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/efa-pytorch:2.15.0 --key cosign.pub",
    help={
        "image": "host/repository:tag or host/repository@sha256:…, in any registry.",
        "key": "The public key, or a key service's reference, of the signature that it must have.",
        "identity": "The signer of its keyless signature, as a regular expression; with --issuer.",
        "issuer": "The issuer of that identity, as https://token.actions.githubusercontent.com.",
    }
    | JSON,
)
def verify(
    _: Context,
    image: str,
    key: str = "",
    identity: str = "",
    issuer: str = "",
    json: bool = False,
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
    if not builtins.all(verification.holds for verification in verifications):
        raise Exit(code=exit_codes.NO)


def publisher(sign: str, to_stargz: bool = False) -> "Publisher":
    """Return a publisher; the engine is looked for when the first image is sent."""
    from functools import cache

    from rdma_images import engine
    from rdma_images.publish import keys
    from rdma_images.publish.publisher import Publisher
    from rdma_images.publish.push_progress import LineProgress

    return Publisher(
        cache(lambda: engine.ensure(progress)), LineProgress(progress), keys.parse_signer(sign), to_stargz=to_stargz
    )
