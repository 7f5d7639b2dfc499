"""Sizes for people."""

import pytest

from rdma_images.core.sizes import format_bytes, format_megabytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.00 kB"),
        (12_900_000, "12.9 MB"),
        (999_600_000, "1,000 MB"),
        (2_965_000_000, "2.96 GB"),
        (40_000_000_000, "40.0 GB"),
    ],
)
def test_three_digits_or_the_whole_number(count: float, text: str) -> None:
    assert format_bytes(count) == text
    assert format_megabytes(98_400_000) == "98 MB"
