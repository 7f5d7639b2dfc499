"""Check a policy's rules of provenance: builder, source, locked inputs.

Ours is attached by `publish`. A build platform may have attached its own, as a Sigstore bundle: GitHub's attestations
(SLSA 1.0), and those of SLSA's generator for GitHub (0.2).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rdma_images.core.source import ARCHIVE_SIGNATURE, UNPINNED
from rdma_images.publish import statement
from rdma_images.publish.attachment_checks import VerifyFinding
from rdma_images.publish.sigstore_bundles import Bundles, SignedStatement
from rdma_images.scan.policy import OriginRules

PIN = "pin"  # annotation of a dependency that has no digest
PROVENANCES = (statement.PROVENANCE, "https://slsa.dev/provenance/v0.2")
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class StatedOrigin:
    """The statements of a provenance; `unpinned` is None where it lists no inputs."""

    builder: str
    source: str
    unpinned: tuple[str, ...] | None
    contradiction: str = ""  # what its signer's certificate says otherwise


def check_origin(
    content: bytes | None, rules: OriginRules, is_signed: bool | None, bundles: Bundles | None = None
) -> Iterator[VerifyFinding]:
    """Yield a finding for each rule; one provenance must satisfy builder and source.

    Args:
        content: Our provenance; None where none is attached.
        rules: What must hold.
        is_signed: Whether the trusted signer signed it; None where no signer is named.
        bundles: What a trusted signer signed besides.
    """
    bundles = bundles or Bundles()
    try:
        provenances = [
            _read_certified(signed) for signed in bundles.statements if signed.statement["predicateType"] in PROVENANCES
        ]
        if content is not None and is_signed:
            provenances.append(_parse_predicate(statement.parse_predicate(content)))
    except _MALFORMED:
        yield VerifyFinding("origin", False, "the provenance does not have a form that is known here")
        return
    if not provenances:
        yield VerifyFinding("origin", False, "; ".join([_describe_absence(content, is_signed), *bundles.refusals]))
        return
    checks = [list(_check_builder_and_source(provenance, rules)) for provenance in provenances]
    yield from next((findings for findings in checks if all(finding.holds for finding in findings)), checks[-1])
    if rules.locked_inputs:
        yield _check_inputs(provenances)


def _describe_absence(content: bytes | None, is_signed: bool | None) -> str:
    if is_signed is None:
        return "nobody is named whose signature counts: give --key, or --identity and --issuer"
    if content is None:
        return "no provenance is attached that they signed, and the policy asks for one"
    return "the provenance is not signed by them"


def _check_builder_and_source(provenance: StatedOrigin, rules: OriginRules) -> Iterator[VerifyFinding]:
    if provenance.contradiction:
        yield VerifyFinding("origin", False, provenance.contradiction)
    if rules.builders:
        # As slsa-verifier has it: a builder without "@refs/…" is that workflow at any ref.
        holds = any(
            provenance.builder in (rule, f"{rule}@{provenance.builder.partition('@')[2]}") for rule in rules.builders
        )
        yield VerifyFinding("builder", holds, provenance.builder)
    if rules.sources:
        allowed = {_address(entry) for entry in rules.sources}
        holds = _address(provenance.source) in allowed
        yield VerifyFinding("source", holds, provenance.source or "the provenance names none")


def _check_inputs(provenances: list[StatedOrigin]) -> VerifyFinding:
    listings = [provenance.unpinned for provenance in provenances if provenance.unpinned is not None]
    if not listings:
        return VerifyFinding("inputs", False, "no provenance that they signed lists the inputs")
    unpinned = listings[-1]
    detail = f"not locked: {', '.join(unpinned)}" if unpinned else "every input has a digest"
    return VerifyFinding("inputs", not unpinned, detail)


def _read_certified(signed: SignedStatement) -> StatedOrigin:
    """Return a provenance of a bundle.

    A job can write any builder and any source into it. A workflow is the builder where the certificate names it, too,
    and so is a repository the source.
    """
    provenance = _parse_predicate(signed.statement["predicate"])
    contradiction = ""
    if provenance.builder.startswith("https://") and provenance.builder != signed.signer:
        contradiction = f"the provenance names the builder {provenance.builder}, and is signed by {signed.signer}"
    elif signed.source and provenance.source and _address(signed.source) != _address(provenance.source):
        contradiction = f"the provenance names the source {provenance.source}, and its certificate {signed.source}"
    return StatedOrigin(provenance.builder, provenance.source, provenance.unpinned, contradiction)


def _parse_predicate(predicate: Mapping[str, Any]) -> StatedOrigin:
    """Return the content of a SLSA 1.0 or 0.2 predicate. Raises ValueError for others."""
    if "buildDefinition" not in predicate:
        return StatedOrigin(str(predicate["builder"]["id"]), str(predicate["invocation"]["configSource"]["uri"]), None)
    definition = predicate["buildDefinition"]
    dependencies = definition["resolvedDependencies"]
    source = str(
        next(
            (dependency.get("uri", "") for dependency in dependencies if "gitCommit" in dependency.get("digest", {})),
            "",
        )
    )
    unpinned = None
    if definition.get("buildType") == statement.BUILD_TYPE:
        unpinned = tuple(sorted({str(dependency["name"]) for dependency in dependencies if is_unpinned(dependency)}))
    return StatedOrigin(str(predicate["runDetails"]["builder"]["id"]), source, unpinned)


def is_unpinned(dependency: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether a dependency has neither a digest nor a locked archive."""
    return dependency.get("annotations", {}).get(PIN) in (ARCHIVE_SIGNATURE, UNPINNED)


def _address(text: str) -> str:
    """Return a repository's address in one form, as github.com/team/images."""
    text = re.sub(r"^(git\+)?(https?|ssh|git)://(\w+@)?|^\w+@", "", text.strip().partition("@refs/")[0])
    return text.replace(":", "/", 1).removesuffix("/").removesuffix(".git").lower()
