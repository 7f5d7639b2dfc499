"""Packages of Debian, unpacked: what stays when that is interrupted."""

import signal
import threading
import time
from pathlib import Path

import pytest

from rdma_images.debian.unpacked import Apt

# A program whose own process writes on, as apt's methods do.
WRITES = "(while sleep 0.01; do echo more >> written; done) & wait"


def test_an_interruption_ends_what_the_program_started(tmp_path: Path) -> None:
    output = tmp_path / "written"

    def interrupt() -> None:
        while not output.exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        Apt("trixie", tmp_path).run("sh", "-c", WRITES)
    interrupting.join()
    size = output.stat().st_size
    time.sleep(0.1)
    assert output.stat().st_size == size
