"""Untrusted text and JSON: escaped or refused, and decoded without surprises."""

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

# Controls, line breaks of YAML 1.1, and bytes of an option that are not UTF-8.
CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")


def plain(text: str) -> str:
    r"""Return `text` with control and formatting characters escaped: \x1b, \n, \u202e."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def check_characters(text: str) -> None:
    """Raise ValueError, which does not repeat `text`, for a line break or another control character."""
    if match := CONTROL_CHARACTER.search(text):
        raise ValueError(
            f"the character U+{ord(match[0]):04X} is in it, which could begin a line of a Dockerfile or a script: "
            "remove it, or keep the text in a file of its own"
        )


def decode_json(content: str | bytes) -> Any:
    """Return the decoded JSON. Raises ValueError for text that is not JSON, or is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def first_error(error: "ValidationError") -> str:
    """Return where a document first differs from its model: "packages.0: Field required"."""
    misfit = error.errors(include_url=False, include_input=False)[0]
    return plain(f"{'.'.join(map(str, misfit['loc'])) or 'its start'}: {misfit['msg']}")
