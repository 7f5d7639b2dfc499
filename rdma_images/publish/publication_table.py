"""Publications, verifications and reproductions as text and JSON."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.core.plain import plain
from rdma_images.core.sizes import format_bytes
from rdma_images.publish.multi_platform_index import JoinResult
from rdma_images.publish.publication import PublishedCopy
from rdma_images.publish.publish_images import PublishResult
from rdma_images.publish.verify import Verification

if TYPE_CHECKING:  # a publication does not wait for what builds
    from rdma_images.publish.reproduce import Reproduction

MAX_ROWS = 50
_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b")
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
    if copy.lazy is not None:
        lazy_state = "" if copy.lazy.result == "pushed" else ", there already"
        output.append(f"  {copy.lazy.form:9} {copy.lazy.ref}, tag {copy.lazy.tag}{lazy_state}\n")
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
            output.append("  failed     ", "bold red").append(f"{_indented(result.error)}\n")
            continue
        output.append(f"  index      {result.ref}\n")
        output.append(f"  platforms  {', '.join(result.platforms)}\n")
        output.append(f"  tags       {', '.join(result.tags)}\n")
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


def reproduction_text(reproduction: "Reproduction") -> RenderableType:
    """Return the verdict, and the first differences as a table."""
    style = "bold green" if reproduction.is_equal else "bold red"
    lines = [Text(f"{'equal' if reproduction.is_equal else 'DIFFERS'}  {reproduction.ref}", style)]
    lines.append(Text(f"  built again from {reproduction.commit}: {reproduction.rebuilt}"))
    if reproduction.reused:
        lines.append(Text(f"  {reproduction.reused} layers of wheels were made on this machine before", "yellow"))
    if reproduction.compiled:
        listed = plain(", ".join(reproduction.compiled))
        lines.append(Text(f"  compiled on this machine before, and not again: {listed}", "yellow"))
    if not reproduction.tool:
        lines.append(Text("  the provenance does not say which version of this tool built it", "yellow"))
    if not reproduction.is_equal and reproduction.unpinned:
        listed = plain(", ".join(reproduction.unpinned))
        lines.append(Text(f"  not locked, so that another day has other bytes: {listed}", "yellow"))
    if not reproduction.differences:
        return Group(*lines)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("part", "path", "aspect", "published", "built again"):
        table.add_column(name, overflow="fold")
    for difference in reproduction.differences[:MAX_ROWS]:
        values = (difference.published, difference.rebuilt)
        cells = (difference.part, difference.path, difference.aspect, *(_HASH.sub(r"\1…", value) for value in values))
        table.add_row(*(Text(plain(cell)) for cell in cells))
    more = len(reproduction.differences) - MAX_ROWS
    return Group(*lines, table, *([Text(f"and {more} more differences: --json has all")] if more > 0 else []))


def reproduction_json(reproduction: "Reproduction") -> str:
    """Return the verdict and all differences as JSON."""
    return json.dumps({"equal": reproduction.is_equal, **asdict(reproduction)}, indent=2)


def as_json(results: Sequence[PublishResult | JoinResult | Verification]) -> str:
    """Return the results as JSON."""
    return json.dumps([asdict(result) for result in results], indent=2)


def _empty() -> Text:
    return Text(no_wrap=True, overflow="ignore")
