"""Publications and verifications for people (tables) and for programs (JSON)."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from rdma_images.publish.join import Joined
from rdma_images.publish.progress import mebibytes
from rdma_images.publish.publish import Outcome
from rdma_images.publish.verify import Verification


def table(outcomes: Sequence[Outcome]) -> Table:
    """What became of each image in each registry."""
    made = Table(title="Published", title_justify="left")
    for head in ("registry", "image", "result", "sent", "mounted", "there", "tags"):
        made.add_column(head, overflow="fold", justify="right" if head in ("sent", "mounted", "there") else "left")
    for one in outcomes:
        if one.place is None:
            made.add_row(one.registry, one.image_id, f"[red]failed[/]: {escape(one.error)}", "", "", "", "")
            continue
        place, traffic = one.place, one.place.traffic
        speed = (
            f" at {mebibytes(int(traffic.pushed / traffic.seconds))}/s" if traffic.pushed and traffic.seconds else ""
        )
        note = f"[red], but[/] {escape(one.error)}" if one.error else ""
        made.add_row(
            one.registry,
            f"{one.image_id}\n{place.ref}",
            f"[green]{'pushed' if place.result == 'pushed' else 'there already'}[/]{speed}{note}",
            *(mebibytes(size) for size in (traffic.pushed, traffic.mounted, traffic.there)),
            "\n".join(place.tags),
        )
    return made


def joined_table(outcomes: Sequence[Joined]) -> Table:
    """What became of each index."""
    made = Table(title="Joined", title_justify="left")
    for head in ("registry", "index", "platforms", "tags"):
        made.add_column(head, overflow="fold")
    for one in outcomes:
        what = f"[red]failed[/]: {escape(one.error)}" if one.error else one.ref
        made.add_row(one.registry, f"{one.tag}\n{what}", "\n".join(one.platforms), "\n".join(one.tags))
    return made


def verification_table(found: Verification) -> Table:
    """Everything looked at on one image."""
    words = {True: "[green]holds[/]", False: "[red]does not hold[/]", None: "[yellow]not checked[/]"}
    made = Table(title=escape(found.ref), title_justify="left")
    for head in ("what", "", "found"):
        made.add_column(head, overflow="fold")
    for one in found.findings:
        made.add_row(one.what, words[one.holds], escape(one.detail))
    return made


def as_json(outcomes: Sequence[Outcome | Joined | Verification]) -> str:
    """The same for programs."""
    return json.dumps([asdict(one) for one in outcomes], indent=2, default=str)
