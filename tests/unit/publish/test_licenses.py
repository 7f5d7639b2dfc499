"""Licences as wheels and Debian's copyright files write them, as SPDX expressions."""

import pytest

from rdma_images.core import spdx
from rdma_images.inspection.measurements import DebianContents, WheelContents
from rdma_images.publish.evidence import licenses


@pytest.mark.parametrize(
    ("contents", "expression"),
    [
        (WheelContents(license="BSD-3-Clause AND 0BSD AND MIT"), "BSD-3-Clause AND 0BSD AND MIT"),
        (WheelContents(license="LicenseRef-NVIDIA-Proprietary"), "LicenseRef-NVIDIA-Proprietary"),
        (WheelContents(license="Apache-2.0 WITH LLVM-exception"), "Apache-2.0 WITH LLVM-exception"),
        (WheelContents(license_field="NVIDIA Proprietary Software"), "LicenseRef-NVIDIA-Proprietary"),
        (WheelContents(license_field="Apache 2.0"), "Apache-2.0"),
        (WheelContents(license_field="MIT"), "MIT"),
        (WheelContents(license="((", license_field="MIT"), "MIT"),
        (WheelContents(license_field="BSD", classifiers=["License :: OSI Approved :: BSD License"]), "LicenseRef-BSD"),
        (WheelContents(classifiers=["License :: OSI Approved :: MIT License"]), "MIT"),
        (WheelContents(license_field="see the file"), "LicenseRef-see-the-file"),
        (WheelContents(), ""),
    ],
)
def test_a_wheels_licence(contents: WheelContents, expression: str) -> None:
    assert licenses.wheel_license(contents) == expression


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (["GPL-2+"], "GPL-2.0-or-later"),
        (["GPL-2", "GPL-2.0-only", "LGPL-2.1+"], "GPL-2.0-only AND LGPL-2.1-or-later"),
        (["GPL-1+ or Artistic", "Expat"], "(GPL-1.0-or-later OR Artistic-1.0-Perl) AND MIT"),
        (["GPL-1+ or Artistic"], "GPL-1.0-or-later OR Artistic-1.0-Perl"),
        (["GPL-2+ and MIT", "Expat"], "GPL-2.0-or-later AND MIT"),
        (["GPL-2 and/or Expat"], "GPL-2.0-only OR MIT"),
        (["GPL-2\tor Expat", "GPL-2\u2028 or Expat"], "GPL-2.0-only OR MIT"),
        (["REGCOMP, and GPL-1+"], "GPL-1.0-or-later AND LicenseRef-REGCOMP"),
        (["BSD-3-clause"], "BSD-3-Clause"),
        (["GPL-3+ with Bison exception"], "LicenseRef-GPL-3-with-Bison-exception"),
        (["Permission to use, copy, modify, and distribute this software and its"], "LicenseRef-text"),
        (["/GPL-3"], "LicenseRef-common-GPL-3"),
        (["public-domain"], "LicenseRef-public-domain"),
        ([], ""),
    ],
)
def test_a_debian_packages_licence(names: list[str], expression: str) -> None:
    assert licenses.debian_license(DebianContents(licenses=names)) == expression


@pytest.mark.parametrize(
    "text", ["MIT AND", "x" * 20_000, "(" * 5_000, "MIT\x00", "MIT OR unheard-of", ")", " ", "MIT AND ()"]
)
def test_what_is_no_expression_is_none(text: str) -> None:
    assert spdx.normalize(text) == ""
