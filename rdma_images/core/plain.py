"""Untrusted text and JSON: escaped for terminals and pages, decoded without surprises."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


def plain(text: str) -> str:
    r"""Return `text` with control and formatting characters escaped: \x1b, \n, \u202e."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def decode_json(content: str | bytes) -> Any:
    """Return the decoded JSON. Raises ValueError where it is none, or is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def first_misfit(error: "ValidationError") -> str:
    """Return where a document first differs from its model: "packages.0: Field required"."""
    misfit = error.errors(include_url=False, include_input=False)[0]
    return plain(f"{'.'.join(map(str, misfit['loc'])) or 'its start'}: {misfit['msg']}")
