"""A policy's rules of provenance: builder, source, locked inputs, a valid signature."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core.errors import RefusedError
from rdma_images.core.source import Source
from rdma_images.plan import matrix, planner
from rdma_images.publish import statement
from rdma_images.publish.origin_policy import check_origin
from rdma_images.scan import policy
from rdma_images.scan.policy import OriginRules
from tests.support.published_image import approve

BUILDER = "urn:rdma-images:builder"
RULES = OriginRules(builders=(BUILDER,), sources=("github.com/team/images",), locked_inputs=True)
LOCKED = Source("base-debian13", "base", "base", "docker.io/library/debian:trixie-slim", f"sha256:{'a' * 64}")


def provenance(*pinned: Source, repository: str = "https://github.com/team/images.git") -> bytes:
    """Return the provenance of efa-pytorch, built from these sources."""
    (image,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    item = approve(image, f"sha256:{'b' * 64}")
    revision = {"repository": repository, "commit": "c" * 40}
    predicate = statement.provenance(image, item.build, revision, pinned)
    return statement.statement(image.target, item.build.digest, statement.PROVENANCE, predicate)


def results(content: bytes | None, rules: OriginRules = RULES, is_signed: bool | None = True) -> dict[str, object]:
    return {finding.check: finding.holds for finding in check_origin(content, rules, is_signed)}


def test_what_the_policy_asks_holds() -> None:
    assert results(provenance(LOCKED)) == {"builder": True, "source": True, "inputs": True}
    assert results(provenance(LOCKED), OriginRules()) == {}


@pytest.mark.parametrize("address", ["git@github.com:team/images.git", "ssh://git@github.com/Team/images/"])
def test_a_source_is_the_same_in_every_form_of_its_address(address: str) -> None:
    assert results(provenance(LOCKED, repository=address))["source"] is True


def test_another_source_builder_or_an_input_without_a_digest_does_not_hold() -> None:
    archive = replace(LOCKED, id="debian-trixie", kind="apt", pin="archive-signature")
    rules = RULES.model_copy(update={"builders": ("https://example.com/builder",)})
    content = provenance(LOCKED, archive, repository="https://github.com/team/images-evil")
    assert results(content, rules) == {"builder": False, "source": False, "inputs": False}
    (finding,) = [candidate for candidate in check_origin(content, rules, True) if candidate.check == "inputs"]
    assert finding.detail == "not locked: debian-trixie"


def test_a_source_that_is_no_address_does_not_hold() -> None:
    body = json.loads(provenance(LOCKED))
    body["predicate"]["buildDefinition"]["resolvedDependencies"][0]["uri"] = 7
    assert results(json.dumps(body).encode())["source"] is False


@pytest.mark.parametrize(
    ("content", "is_signed", "detail"),
    [
        (None, True, "no provenance is attached"),
        (b"{}", None, "give --key, or --identity and --issuer"),
        (b"{}", False, "not signed by them"),
        (b"{}", True, "does not have a form"),
        (b'{"buildDefinition": {"resolvedDependencies": [3]}}', True, "does not have a form"),
    ],
)
def test_a_provenance_that_proves_nothing_does_not_hold(
    content: bytes | None, is_signed: bool | None, detail: str
) -> None:
    (finding,) = check_origin(content, RULES, is_signed)
    assert finding.holds is False
    assert detail in finding.detail


def test_a_policy_without_rules_of_origin_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("grace-days: {critical: 14}\n")
    with pytest.raises(
        RefusedError, match=r"policy\.yaml:1: has no 'origin', .*\nadd it, as .*policy\.example\.yaml has it; "
    ):
        policy.load_policy(file).require_origin()


def test_a_policy_names_them_and_an_unknown_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("grace-days: {}\norigin: {sources: [github.com/team/images], locked-inputs: true}\n")
    assert policy.load_policy(file).origin == OriginRules(sources=("github.com/team/images",), locked_inputs=True)
    for origin in ("source: x", "identity: ^https://github.com/team/"):
        file.write_text(f"grace-days: {{}}\norigin: {{{origin}}}\n")
        with pytest.raises(Exception, match=r"policy\.yaml:2"):
            policy.load_policy(file)


def test_an_input_has_its_digest_or_what_vouches_for_it() -> None:
    archive = replace(LOCKED, id="debian-trixie", kind="apt", upstream="http://inside/debian", pin="archive-signature")
    dependencies = json.loads(provenance(LOCKED, archive))["predicate"]["buildDefinition"]["resolvedDependencies"]
    by_name = {item["name"]: item for item in dependencies}
    assert by_name["base-debian13"]["digest"] == {"sha256": "a" * 64}
    assert by_name["debian-trixie"] == {"name": "debian-trixie", "annotations": {"pin": "archive-signature"}}
