"""A daemon that does not answer is reported by its log."""

import pathlib

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import daemons, process


@pytest.mark.parametrize(
    ("last", "fix"),
    [("mkdir /s/run: no space left on device", "free disk space there, as with "), ("failed to start", "see ")],
)
def test_a_daemon_that_ended_is_reported_by_its_last_line(tmp_path: pathlib.Path, last: str, fix: str) -> None:
    log = tmp_path / "dockerd.log"
    daemon = process.start(["/bin/sh", "-c", f"echo first; echo '{last}'"], log, {}, tmp_path / "dockerd.json")
    with pytest.raises(RdmaImagesError) as caught:
        daemons.wait_until_ready(lambda: False, daemon, "dockerd", log)
    line, advice = str(caught.value).splitlines()
    assert line == f"the private engine's dockerd ended, and last wrote: {last}"
    assert advice.startswith(fix)
    assert str(log) in advice
