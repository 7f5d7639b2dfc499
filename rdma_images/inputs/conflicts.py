"""What uv says where packages do not go together, read: which package needs which torch, and what to choose then."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from rdma_images.core import atomic
from rdma_images.core.paths import state_folder
from rdma_images.inputs.wheels import Asked

# "vllm>=0.27.0,<=0.32.0 depends on torch==2.13.0 and vllm>=0.33.0 depends on torch==2.14.0"
NEED = re.compile(
    r"(?P<name>[\w.-]+?)(?:==(?P<exact>[\w.]+)|>=(?P<least>[\w.]+)(?:,<=(?P<most>[\w.]+))?) depends on "
    r"torch==(?P<torch>\d+(?:\.\d+)*)"
)


def explain(asked: Asked, complaint: str) -> str:
    """Return why a question has no answer: the fact and the nearest torch, else uv's own words in one line.

    Args:
        complaint: What uv printed.
    """
    words = " ".join(complaint.split()).removeprefix("error: ")
    torch = next((line.removeprefix("torch==") for line in asked.requirements if line.startswith("torch==")), "")
    needs = [match for match in NEED.finditer(words) if match["torch"] != torch]
    if not torch or not needs:
        return f"uv finds no wheels: {words}\nchange the versions, or the index that uv uses"
    need = max(needs, key=lambda match: _key(match["exact"] or match["least"]))
    version = need["exact"] or (f"{need['least']} to {need['most']}" if need["most"] else f"{need['least']} and later")
    verb = "needs" if need["exact"] else "need"
    return (
        f"{need['name']} {version} {verb} torch {need['torch']}, and torch {torch} is planned\n"
        f"nearest that works: --set pytorch={need['torch']}"
    )


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def remember(asked: Asked, reason: str | None) -> None:
    """Write why the index had no answer to a question today; None for a question that it answered."""
    path = _path(asked)
    if reason is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, json.dumps({"reason": reason, "day": f"{datetime.now(UTC):%Y-%m-%d}"}))


def recall(asked: Asked) -> str | None:
    """Return why the index had no answer, and when it was asked; None where it was not asked, or had one."""
    try:
        kept = json.loads(_path(asked).read_text(encoding="utf-8"))
        fact, _, fix = kept["reason"].partition("\n")
        return f"{fact} (asked of the package index on {kept['day']})\n{fix}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _path(asked: Asked) -> Path:
    return state_folder() / "conflicts" / f"{asked.key}.json"
