"""Parse JSON that others wrote: a registry, or whoever may push to it. Any bytes may come."""

import json
from typing import Any

from rdma_images.registry import faults


def parse_document(raw: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object in `raw`, which an error calls `name`. Raises MalformedError for anything else."""
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        # Without its bytes: they may hold a token.
        raise faults.MalformedError(
            f"{name} is no JSON object\nsee that a registry is at this address, and no web page or proxy"
        )
    return parsed
