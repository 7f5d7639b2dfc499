"""Packages of Debian, unpacked: what stays when that is interrupted."""

import pathlib
import signal
import threading
import time
from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine.debian import debian_packages
from rdma_images.engine.debian.debian_packages import Apt

# A program whose own process writes on, as apt's methods do.
WRITES = "(while sleep 0.01; do echo more >> written; done) & wait"


def test_an_interruption_ends_what_the_program_started(tmp_path: Path) -> None:
    output = tmp_path / "written"

    def interrupt() -> None:
        # Some lines, so that this process is past the program's start, which an interruption would leave running.
        while not output.exists() or output.stat().st_size < 100:
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


def test_a_full_disk_is_reported_before_apt_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt-get 2.6 waits forever for its own methods where they cannot write."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    monkeypatch.setattr("rdma_images.core.disk_space.free", lambda _: 4 * 10**6)
    expected = r"^reading the package lists of Debian trixie needs 150 MB, and .* has 4\.00 MB free\nfree 146 MB there"
    with pytest.raises(RdmaImagesError, match=expected):
        debian_packages.updated_apt("trixie", tmp_path / "apt")
    assert not (tmp_path / "apt").exists()


@pytest.mark.parametrize(
    ("last", "first_line"),
    [
        ("tar: ./c: Cannot write: No space left on device", "tar: ./c: Cannot write: No space left on device"),
        ("dpkg-deb: error: tar subprocess returned error exit status 2", "tar: ./b: Wrote only 7168 of 10240 bytes"),
    ],
)
def test_a_program_without_errors_of_apts_form_is_reported_by_one_line(
    tmp_path: Path, last: str, first_line: str
) -> None:
    script = f"echo 'tar: ./b: Wrote only 7168 of 10240 bytes' >&2; echo '{last}' >&2; exit 2"
    with pytest.raises(RdmaImagesError) as caught:
        Apt("trixie", tmp_path).run("sh", "-c", script)
    line, fix = str(caught.value).splitlines()
    assert line == f"sh -c for Debian trixie failed: {first_line}"
    assert fix.startswith("free disk space there") == ("No space left" in first_line)


def test_packages_that_came_whole_are_not_fetched_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / debian_packages.MANIFEST).write_text('{"runc": "1.1.5"}')
    assert debian_packages.fetch(["runc"], "no such suite", tmp_path) == tmp_path
