"""JSON that others wrote: a registry, or whoever may push to it. Any bytes may come, and none may end a program."""

import json
from typing import Any

from rdma_images.registry import faults


def document(raw: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `raw`, which an error calls `what`. Raises MalformedError for anything else."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        # Without its bytes: they may hold a token.
        raise faults.MalformedError(
            f"{what} is no JSON object\nsee that a registry is at this address, and no web page or proxy"
        )
    return found
