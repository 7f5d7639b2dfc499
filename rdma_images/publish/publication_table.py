"""Publications and verifications as text and JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from rdma_images.core.sizes import format_bytes
from rdma_images.publish.platform_index import JoinResult
from rdma_images.publish.publication import PublishedCopy
from rdma_images.publish.publish_images import PublishResult
from rdma_images.publish.verify import Verification

_WORDS = {True: ("passed", "green"), False: ("FAILED", "bold red"), None: ("not checked", "yellow")}


def publish_text(results: Sequence[PublishResult]) -> Text:
    """Return each image's result in each registry: its reference, and what was sent."""
    output = _empty()
    for result in results:
        output.append(f"{result.registry}  {result.image_id}\n", "bold")
        if result.copy is not None:
            output.append(_copy_text(result.copy))
        if result.error:
            output.append("  failed    ", "bold red").append(f"{_indented(result.error)}\n")
    output.rstrip()
    return output


def _copy_text(copy: PublishedCopy) -> Text:
    traffic = copy.traffic
    output = Text("  result    ")
    output.append("pushed" if copy.result == "pushed" else "there already", "green")
    if traffic.pushed and traffic.seconds:
        output.append(f" in {traffic.seconds:.1f} s, {format_bytes(traffic.pushed / traffic.seconds)}/s")
    counts = {"sent": traffic.pushed, "mounted": traffic.mounted, "there already": traffic.present}
    sizes = [f"{format_bytes(count)} {word}" for word, count in counts.items() if count]
    attached = ", ".join(attachment.title for attachment in copy.attached)
    signed = f"; signed with {copy.signed_by}" if copy.signed_by else "; not signed"
    output.append(f"\n  image     {copy.ref}\n")
    output.append(f"  tags      {', '.join(copy.tags)}\n")
    output.append(f"  layers    {', '.join(sizes)}\n")
    output.append(f"  attached  {attached}{signed}\n")
    if copy.stargz is not None:
        state = "" if copy.stargz.result == "pushed" else ", there already"
        output.append(f"  stargz    {copy.stargz.ref}, tag {copy.stargz.tag}{state}\n")
    return output


def _indented(error: str) -> str:
    """Return an error whose further lines stand below its first."""
    return error.replace("\n", "\n            ")


def join_text(results: Sequence[JoinResult]) -> Text:
    """Return the result for each index."""
    if not results:
        return Text("no image has several platforms: there is nothing to join")
    output = _empty()
    for result in results:
        output.append(f"{result.registry}  {result.tag}\n", "bold")
        if result.error:
            output.append("  failed  ", "bold red").append(f"{_indented(result.error)}\n")
        else:
            output.append(f"  index   {result.ref}\n")
    output.rstrip()
    return output


def verify_text(verifications: Sequence[Verification]) -> Text:
    """Return every check of each image or index, a line each."""
    output = _empty()
    for verification in verifications:
        output.append(f"{verification.ref}\n", "bold")
        width = max(len(finding.check) for finding in verification.findings)
        for finding in verification.findings:
            word, style = _WORDS[finding.holds]
            output.append(f"  {word:12}", style).append(f"{finding.check:{width}}  {finding.detail}\n")
    output.rstrip()
    return output


def as_json(results: Sequence[PublishResult | JoinResult | Verification]) -> str:
    """Return the results as JSON."""
    return json.dumps([asdict(result) for result in results], indent=2)


def _empty() -> Text:
    return Text(no_wrap=True, overflow="ignore")
