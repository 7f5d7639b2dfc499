"""The order of Debian's versions, compared with dpkg itself where it is."""

import shutil
import subprocess
from itertools import pairwise

import pytest

from rdma_images.scan import advisories

VERSIONS = (
    *("1.0", "1.0-1", "1.0-0", "1.0~rc1-1", "1.0~~", "1.0+b1", "1.0a", "1.0.", "1.0-1~bpo13+1", "1:0.9", "0:1.0"),
    *("2.41-12", "2.41-12+deb13u1", "2.41-9", "60.0amzn1.0-1", "60.0-1", "7.0.0+really6.2-1", "", "1.00", "1.0-1-1"),
)


def test_the_order_is_policys() -> None:
    ordered = ["1.0~~", "1.0~rc1-1", "1.0", "1.0-1~bpo13+1", "1.0-1", "1.0a", "1.0+b1", "2.41-9", "2.41-12", "1:0.9"]
    assert all(advisories.debian_key(low) < advisories.debian_key(high) for low, high in pairwise(ordered))
    assert advisories.debian_key("1.0") == advisories.debian_key("1.0-0") == advisories.debian_key("0:1.00")


@pytest.mark.skipif(not shutil.which("dpkg"), reason="dpkg is not here to compare with")
def test_dpkg_says_the_same() -> None:
    pairs = [(first, second) for first in VERSIONS for second in VERSIONS if first and second]
    script = "".join(
        f"dpkg --compare-versions '{first}' lt '{second}' && echo y || echo n\n" for first, second in pairs
    )
    answers = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True).stdout.split()
    ours = ["y" if advisories.debian_key(first) < advisories.debian_key(second) else "n" for first, second in pairs]
    assert [pair for pair, mine, dpkg in zip(pairs, ours, answers, strict=True) if mine != dpkg] == []
