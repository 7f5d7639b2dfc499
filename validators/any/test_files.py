"""The files of an image."""

import pytest

from rdma_images.inspection.measurements import Files
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.wording import shorten_list

WRITABLE_SOURCE = "CWE-732: whoever runs in the container can change what others run"
MAX_SHOWN = 8


@pytest.mark.validator("files.writable", source=WRITABLE_SOURCE, severity="warning")
def test_writable(files: Files, require: Requirement) -> None:
    """Nothing but sticky folders is writable for everybody."""
    refused = any("/.ssh" in path for path in files.world_writable)
    keys = ": sshd refuses the keys in .ssh" if refused else ""
    require(
        not files.world_writable,
        expected="none",
        actual=f"everybody may write to {shorten_list(files.world_writable)}{keys}" if files.world_writable else "none",
        fix=f"chmod o-w {' '.join(files.world_writable[:MAX_SHOWN])}",
        severity=None if refused else "note",  # makers open /workspace to any user
    )
