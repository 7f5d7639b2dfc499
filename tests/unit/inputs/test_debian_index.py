"""A target's Debian packages are looked up in the archive's index before a build."""

import lzma
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rdma_images import facts
from rdma_images.core.errors import RefusedError
from rdma_images.inputs import debian_index, mirrors
from tests.support.images import planned_image
from tests.support.publish_doubles import Handler, served

pytestmark = pytest.mark.usefixtures("state")
PACKAGES = """Package: libc6-dev
Version: 2.41-12
Provides: libc-dev, libc6-dev-x (= 1)

Package: gcc
Version: 4:14.2.0-1

Package: node-lodash-packages
Version: 4.17.21

Package: openmpi-bin
Version: 5.0.7-1
"""


class ArchiveHandler(Handler):
    def do_GET(self) -> None:
        body = lzma.compress(PACKAGES.encode())
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def archive_of(host: str) -> mirrors.Mirrors:
    return replace(mirrors.load(), addresses={"apt": (f"http://{host}/debian", "mirrors.yaml:1")})


@pytest.fixture
def archive() -> Iterator[mirrors.Mirrors]:
    with served(ArchiveHandler) as host:
        yield archive_of(host)


@pytest.mark.parametrize("packages", [("gcc", "libc6-dev"), ("libc-dev",), ("gcc=4:14.2.0-1",), ()])
def test_what_the_archive_has_is_no_problem(archive: mirrors.Mirrors, packages: tuple[str, ...]) -> None:
    debian_index.require_packages([replace(planned_image(), debian_packages=packages)], facts.load(), archive)


@pytest.mark.parametrize(
    ("package", "sentence"),
    [
        ("libc6-devv", "libc6-devv, which the archive of debian13 does not have\ndid you mean libc6-dev"),
        ("openmpi", "does not have\ndid you mean openmpi-bin[?] correct the name"),
        ("no-such-package", "does not have\ncorrect the name"),
    ],
)
def test_what_it_does_not_have_is_refused(archive: mirrors.Mirrors, package: str, sentence: str) -> None:
    with pytest.raises(RefusedError, match=sentence):
        debian_index.require_packages([replace(planned_image(), debian_packages=(package,))], facts.load(), archive)


def test_an_archive_that_does_not_answer_refuses_nothing() -> None:
    silent = archive_of("127.0.0.1:1")
    debian_index.require_packages([replace(planned_image(), debian_packages=("nothing",))], facts.load(), silent)
