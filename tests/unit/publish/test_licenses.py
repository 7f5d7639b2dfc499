"""Licences as wheels and Debian's copyright files write them, in the bill of materials."""

import pytest
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression

from rdma_images.inspection.measurements import DebianContents, WheelContents
from rdma_images.publish.evidence import licenses


def named(name: str) -> License:
    return DisjunctiveLicense(name=name)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (WheelContents(license="BSD-3-Clause AND 0BSD AND MIT"), [LicenseExpression("BSD-3-Clause AND 0BSD AND MIT")]),
        (WheelContents(license="LicenseRef-NVIDIA-Proprietary"), [LicenseExpression("LicenseRef-NVIDIA-Proprietary")]),
        (WheelContents(license="((", license_field="MIT"), [LicenseExpression("MIT")]),
        (WheelContents(license_field="BSD", classifiers=["License :: OSI Approved :: BSD License"]), [named("BSD")]),
        (WheelContents(classifiers=["License :: OSI Approved :: MIT License", "Topic :: X"]), [named("MIT License")]),
        (WheelContents(license_field="a " * 100), [named("a " * 39 + "a…")]),
        (WheelContents(license_field="\n"), [named("unnamed")]),
        (WheelContents(), []),
    ],
)
def test_a_wheels_licence(contents: WheelContents, expected: list[License]) -> None:
    assert licenses.wheel_licenses(contents) == expected


def test_a_debian_package_has_debians_names() -> None:
    contents = DebianContents(licenses=["GPL-2+", "BSD-3-clause", "GPL-1+ or Artistic", "/GPL-3"])
    names = [named("GPL-2+"), DisjunctiveLicense(id="BSD-3-Clause"), named("GPL-1+ or Artistic"), named("GPL-3")]
    assert licenses.debian_licenses(contents) == names


@pytest.mark.parametrize(
    "text", ["MIT AND", "x" * 20_000, "(" * 5_000, "MIT\x00", "MIT OR unheard-of", ")", " ", "MIT AND ()"]
)
def test_what_is_no_expression_is_none(text: str) -> None:
    assert licenses.normalize(text) == ""
