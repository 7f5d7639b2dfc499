"""What a policy asks of an image's provenance: who built it, from which source, and from locked inputs alone."""

import re
from collections.abc import Iterator

from rdma_images.core.pipeline import ARCHIVE_SIGNATURE, UNPINNED
from rdma_images.publish import statement
from rdma_images.publish.attachment_checks import VerifyFinding
from rdma_images.scan.policy import OriginRules

PIN = "pin"  # annotation of a dependency that has no digest


def check_origin(content: bytes | None, rules: OriginRules, is_signed: bool | None) -> Iterator[VerifyFinding]:
    """Yield a finding for each rule.

    Args:
        content: The provenance; None where none is attached.
        rules: What must hold.
        is_signed: Whether the trusted signer signed it; None where no signer is named.
    """
    if content is None:
        yield VerifyFinding("origin", False, "no provenance is attached, and the policy asks for one")
        return
    if not is_signed:
        detail = "nobody is named whose signature counts: give --key, or --identity and --issuer"
        yield VerifyFinding("origin", False, detail if is_signed is None else "the provenance is not signed by them")
        return
    try:
        predicate = statement.predicate(content)
        dependencies = predicate["buildDefinition"]["resolvedDependencies"]
        builder = str(predicate["runDetails"]["builder"]["id"])
        source = str(next((item.get("uri", "") for item in dependencies if "gitCommit" in item.get("digest", {})), ""))
        unpinned = sorted({str(item["name"]) for item in dependencies if is_unpinned(item)})
    except (ValueError, KeyError, TypeError, AttributeError):
        yield VerifyFinding("origin", False, "the provenance does not have the form that is published here")
        return
    if rules.builders:
        yield VerifyFinding("builder", builder in rules.builders, builder)
    if rules.sources:
        allowed = {_address(entry) for entry in rules.sources}
        yield VerifyFinding("source", _address(source) in allowed, source or "the provenance names none")
    if rules.locked_inputs:
        detail = f"not locked: {', '.join(unpinned)}" if unpinned else "every input has a digest"
        yield VerifyFinding("inputs", not unpinned, detail)


def is_unpinned(item: dict[str, dict[str, str]]) -> bool:
    """Return whether a dependency has neither a digest nor a locked archive."""
    return item.get("annotations", {}).get(PIN) in (ARCHIVE_SIGNATURE, UNPINNED)


def _address(text: str) -> str:
    """Return a repository's address in one form: slsa-verifier writes github.com/team/images, git its own forms."""
    text = re.sub(r"^(git\+)?(https?|ssh|git)://(\w+@)?|^\w+@", "", text.strip())
    return text.replace(":", "/", 1).removesuffix("/").removesuffix(".git").lower()
