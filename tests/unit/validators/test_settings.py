"""What the validators say of the variables and versions of an image."""

import pytest

from validators.support import variables


@pytest.mark.parametrize(
    ("fixes", "expected"),
    [
        ([], ""),
        (["install NCCL 2.9.6 or later", "install NCCL 2.18.1 or later"], "install NCCL 2.18.1 or later"),
        (["install NCCL 2.18.1 or later", "install NCCL 2.9.6 or later"], "install NCCL 2.18.1 or later"),
        (
            ["install NCCL 2.9.6 or later", "install the EFA installer 1.49 or later"],
            "install NCCL 2.9.6 or later; install the EFA installer 1.49 or later",
        ),
        (
            ["install NCCL 2.9.6 or later", "install NCCL 2.18.1 or later, or leave A out"],
            "install NCCL 2.9.6 or later; install NCCL 2.18.1 or later, or leave A out",
        ),
        (["set A=1", "set A=1"], "set A=1"),
    ],
)
def test_of_several_versions_the_newest_is_asked_for(fixes: list[str], expected: str) -> None:
    assert variables.join_fixes(dict.fromkeys(fixes)) == expected
