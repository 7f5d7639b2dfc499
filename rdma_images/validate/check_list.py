"""Show the checks that images get, by the folder that each check lies in."""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.text import Text

from rdma_images.validate.check_folders import ListedCheck


def check_list_text(listed: Mapping[str, Sequence[ListedCheck]]) -> Text:
    """Return a paragraph for each image: its folders, why it gets them, and their checks in lines."""
    output = Text(no_wrap=True, overflow="ignore")
    for image_id, checks in listed.items():
        output.append(f"{image_id}: {len(checks)} checks\n", "bold")
        by_folder = sorted(checks, key=lambda check: check.folder)
        for (folder, reason), members in groupby(by_folder, key=lambda check: (check.folder, check.reason)):
            output.append(f"validators/{folder}/", "cyan").append(f"  {reason}\n", "dim")
            for check in members:
                tier = "" if check.tier in ("static", "any") else f" ({check.tier})"
                output.append(f"  {check.id:30} ").append(f"{check.title}{tier}\n", "dim")
    output.append("More may apply once the image is measured: validators/transports/", "dim")
    return output


def as_json(listed: Mapping[str, Sequence[ListedCheck]]) -> str:
    """Return {image id: [{"folder", "reason", "id", "title", "tier", "severity"}]}."""
    return json.dumps({name: [check._asdict() for check in checks] for name, checks in listed.items()}, indent=2)
