"""Versions of unlike makers, in order."""

import pytest

from rdma_images.core import versions


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.44.0", "1.100.0"),
        ("1.22.0", "1.22.0amzn1.0"),
        ("1.22.0amzn4.0", "1.22.0amzn5.0"),
        ("1.22.0amzn9.0", "1.22.0amzn10.0"),
        ("1.22.0amzn5.0", "1.22.1"),
        ("2.3.1amzn4.0", "2.4.0amzn1.0"),
        ("60.amzn0", "61.0"),
        ("57.amzn0", "57.amzn1"),
        ("2.26.2", "2.26.2.post1"),
        ("2.30.0rc1", "2.30.0"),
        ("1.9.2-aws", "1.10.0-aws"),
        ("1.13.2-aws", "1.14.0"),
        ("13.0.2", "13.2"),
    ],
)
def test_order(older: str, newer: str) -> None:
    assert versions.sort_key(older) < versions.sort_key(newer)
    assert versions.at_least(newer, older)
    assert not versions.at_least(older, newer)


@pytest.mark.parametrize(("version", "same"), [("1.9.1-aws", "1.9.1"), ("13", "13.0"), ("v1.2", "1.2.0")])
def test_two_ways_to_write_one_version(version: str, same: str) -> None:
    assert versions.sort_key(version) == versions.sort_key(same)


def test_no_version() -> None:
    with pytest.raises(ValueError, match="'latest' is not a version"):
        versions.sort_key("latest")


def test_newest_first() -> None:
    assert versions.newest_first(["2.9.1", "2.15.0", "2.10.0"]) == ["2.15.0", "2.10.0", "2.9.1"]
    assert versions.newest_first(["2.10.0a0", "2.10.0.dev1", "2.10.0"]) == ["2.10.0", "2.10.0a0", "2.10.0.dev1"]
