"""Licences in the bill of materials: SPDX's where a package uses them, else as the package calls them."""

import textwrap

from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.spdx import fixup_id
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from rdma_images.inspection.measurements import DebianContents, WheelContents

MAX_NAME = 80  # characters of a name; a longer one is the licence's text


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


def normalize(text: str) -> str:
    """Return a valid SPDX expression in its normal form; "" for an invalid one."""
    try:
        return canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return ""
