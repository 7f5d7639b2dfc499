"""SPDX expressions: validated, joined, compared. A LicenseRef may have any name."""

import functools
import re
from collections.abc import Iterable, Iterator

from license_expression import (
    ExpressionError,
    ExpressionParseError,
    LicenseExpression,
    Licensing,
    get_spdx_licensing,
)

_REFERENCE = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")
_MAX_LENGTH = 10_000  # characters of an expression; numpy's has 60


@functools.cache
def _licensing() -> Licensing:
    return get_spdx_licensing()


def normalize(text: str) -> str:
    """Return a valid SPDX expression in its normal form; "" for an invalid one."""
    if len(text) > _MAX_LENGTH or "\x00" in text:
        return ""
    try:
        parsed = _licensing().parse(text)
    except (ExpressionError, ExpressionParseError, RecursionError, IndexError):  # the last for "MIT and ()"
        return ""
    if parsed is None or any(not _REFERENCE.fullmatch(key) for key in _licensing().unknown_license_keys(parsed)):
        return ""
    return str(parsed.render())


def conjunction(expressions: Iterable[str]) -> str:
    """Return one expression in which all of `expressions` hold, each licence once, sorted."""
    unique = {part for expression in expressions if expression for part in _conjuncts(_licensing().parse(expression))}
    parts = [f"({part})" if " OR " in part and len(unique) > 1 else part for part in sorted(unique)]
    return " AND ".join(parts)


def _conjuncts(parsed: LicenseExpression) -> Iterator[str]:
    if isinstance(parsed, _licensing().AND):
        for part in parsed.args:
            yield from _conjuncts(part)
    else:
        yield str(parsed.render())
