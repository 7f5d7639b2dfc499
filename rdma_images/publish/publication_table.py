"""Publications and verifications for people (text) and for programs (JSON)."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from rdma_images.core.sizes import readable
from rdma_images.publish.join import Joined
from rdma_images.publish.publication import Place
from rdma_images.publish.publish_images import Outcome
from rdma_images.publish.verify import Verification

_WORDS = {True: ("passed", "green"), False: ("FAILED", "bold red"), None: ("not checked", "yellow")}


def text(outcomes: Sequence[Outcome]) -> Text:
    """What became of each image in each registry: its reference in one piece, to be copied, and what went there."""
    shown = _empty()
    for one in outcomes:
        shown.append(f"{one.registry}  {one.image_id}\n", "bold")
        if one.place is not None:
            shown.append(_place(one.place))
        if one.error:
            shown.append("  failed    ", "bold red").append(f"{_below(one.error)}\n")
    shown.rstrip()
    return shown


def _place(place: Place) -> Text:
    traffic = place.traffic
    shown = Text("  result    ")
    shown.append("pushed" if place.result == "pushed" else "there already", "green")
    if traffic.pushed and traffic.seconds:
        shown.append(f" in {traffic.seconds:.1f} s, {readable(traffic.pushed / traffic.seconds)}/s")
    sizes = [f"{readable(count)} {word}" for word, count in _sizes(place).items() if count]
    attached = ", ".join(one.title for one in place.attached)
    signed = f"; signed with {place.signed_by}" if place.signed_by else "; not signed"
    shown.append(f"\n  image     {place.ref}\n")
    shown.append(f"  tags      {', '.join(place.tags)}\n")
    shown.append(f"  layers    {', '.join(sizes)}\n")
    shown.append(f"  attached  {attached}{signed}\n")
    return shown


def _below(error: str) -> str:
    """An error whose further lines stand below its first."""
    return error.replace("\n", "\n            ")


def _sizes(place: Place) -> dict[str, int]:
    traffic = place.traffic
    return {"sent": traffic.pushed, "mounted": traffic.mounted, "there already": traffic.there}


def joined(outcomes: Sequence[Joined]) -> Text:
    """What became of each index."""
    if not outcomes:
        return Text("no image has several platforms: there is nothing to join")
    shown = _empty()
    for one in outcomes:
        shown.append(f"{one.registry}  {one.tag}\n", "bold")
        if one.error:
            shown.append("  failed     ", "bold red").append(f"{_below(one.error)}\n")
            continue
        shown.append(f"  index      {one.ref}\n")
        shown.append(f"  platforms  {', '.join(one.platforms)}\n")
        shown.append(f"  tags       {', '.join(one.tags)}\n")
    shown.rstrip()
    return shown


def verified(found: Sequence[Verification]) -> Text:
    """Everything looked at, a line each."""
    shown = _empty()
    for one in found:
        shown.append(f"{one.ref}\n", "bold")
        width = max(len(finding.what) for finding in one.findings)
        for finding in one.findings:
            word, style = _WORDS[finding.holds]
            shown.append(f"  {word:12}", style).append(f"{finding.what:{width}}  {finding.detail}\n")
    shown.rstrip()
    return shown


def as_json(outcomes: Sequence[Outcome | Joined | Verification]) -> str:
    """The same for programs."""
    return json.dumps([asdict(one) for one in outcomes], indent=2)


def _empty() -> Text:
    return Text(no_wrap=True, overflow="ignore")
