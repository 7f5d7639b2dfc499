"""What a policy asks of an image's provenance: who built it, from which source, and from locked inputs alone."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rdma_images.core.source import ARCHIVE_SIGNATURE, UNPINNED
from rdma_images.publish import statement
from rdma_images.publish.attachment_checks import VerifyFinding
from rdma_images.scan.policy import OriginRules

PIN = "pin"  # annotation of a dependency that has no digest
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class StatedOrigin:
    """The statements of a provenance. `unpinned`: the inputs without a digest."""

    builder: str
    source: str
    unpinned: tuple[str, ...]


def check_origin(content: bytes | None, rules: OriginRules, is_signed: bool | None) -> Iterator[VerifyFinding]:
    """Yield a finding for each rule.

    Args:
        content: The provenance that `publish` attached; None where none is attached.
        rules: What must hold.
        is_signed: Whether the trusted signer signed it; None where no signer is named.
    """
    if content is None or not is_signed:
        yield VerifyFinding("origin", False, _describe_absence(content, is_signed))
        return
    try:
        provenance = _parse_predicate(statement.parse_predicate(content))
    except _MALFORMED:
        yield VerifyFinding("origin", False, "the provenance does not have a form that is known here")
        return
    if rules.builders:
        yield VerifyFinding("builder", provenance.builder in rules.builders, provenance.builder)
    if rules.sources:
        holds = _address(provenance.source) in {_address(source) for source in rules.sources}
        yield VerifyFinding("source", holds, provenance.source or "the provenance names none")
    if rules.locked_inputs:
        unpinned = ", ".join(provenance.unpinned)
        yield VerifyFinding(
            "inputs", not unpinned, f"not locked: {unpinned}" if unpinned else "every input has a digest"
        )


def _describe_absence(content: bytes | None, is_signed: bool | None) -> str:
    if is_signed is None:
        return "nobody is named whose signature counts: give --key, or --identity and --issuer"
    if content is None:
        return "no provenance is attached that they signed, and the policy asks for one"
    return "the provenance is not signed by them"


def _parse_predicate(predicate: Mapping[str, Any]) -> StatedOrigin:
    """Return what a predicate of SLSA 1.0 says. Raises ValueError and the like for another form."""
    dependencies = predicate["buildDefinition"]["resolvedDependencies"]
    addresses = (entry.get("uri", "") for entry in dependencies if "gitCommit" in entry.get("digest", {}))
    return StatedOrigin(
        builder=str(predicate["runDetails"]["builder"]["id"]),
        source=str(next(addresses, "")),
        unpinned=tuple(sorted({str(dependency["name"]) for dependency in dependencies if is_unpinned(dependency)})),
    )


def is_unpinned(dependency: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether a dependency has neither a digest nor a locked archive."""
    return dependency.get("annotations", {}).get(PIN) in (ARCHIVE_SIGNATURE, UNPINNED)


def _address(text: str) -> str:
    """Return a repository's address in one form: slsa-verifier writes github.com/team/images, git its own forms."""
    text = re.sub(r"^(git\+)?(https?|ssh|git)://(\w+@)?|^\w+@", "", text.strip().partition("@refs/")[0])
    return text.replace(":", "/", 1).removesuffix("/").removesuffix(".git").lower()
