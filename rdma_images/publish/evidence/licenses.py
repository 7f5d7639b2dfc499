"""Licences in the bill of materials: SPDX's where a package uses them, else as the package calls them."""

import functools
import re
import textwrap

from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.spdx import fixup_id
from license_expression import ExpressionError, ExpressionParseError, Licensing, get_spdx_licensing

from rdma_images.inspection.measurements import DebianContents, WheelContents

MAX_NAME = 80  # characters of a name; a longer one is the licence's text
_REFERENCE = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")
_MAX_LENGTH = 10_000  # characters of an expression; numpy's has 60


def wheel_licenses(contents: WheelContents) -> list[License]:
    """Return a wheel's licences: its expression, else its field License, else its classifiers."""
    for text in (contents.license, contents.license_field):
        if expression := normalize(text):
            return [LicenseExpression(expression)]
    classifiers = [line.rpartition(" :: ")[2] for line in contents.classifiers if line.startswith("License :: ")]
    names = [contents.license_field] if contents.license_field else classifiers
    return [_license(name) for name in names]


def debian_licenses(contents: DebianContents) -> list[License]:
    """Return all licences of a Debian package's copyright file, by Debian's short names."""
    return [_license(name.removeprefix("/")) for name in contents.licenses]


def _license(name: str) -> License:
    """Return SPDX's licence of this name; for another name, which may be a whole text, the beginning of it."""
    if identifier := fixup_id(name):
        return DisjunctiveLicense(id=identifier)
    return DisjunctiveLicense(name=textwrap.shorten(name, MAX_NAME, placeholder="…") or "unnamed")


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
