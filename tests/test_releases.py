"""A lock is compared with the releases on the index: placeholders and releases of years ago are what nobody means."""

import json
from collections.abc import Iterator

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.inputs import mirrors
from rdma_images.inputs.releases import locked_releases
from rdma_images.inputs.wheels import Asked, Lock, Wheel
from tests.publish_doubles import Handler, served

FILES = {
    "deepspeed": [("deepspeed-0.3.1.dev3-py3-none-any.whl", 2020), ("deepspeed-0.19.8.tar.gz", 2026)],
    "reserved": [("reserved-0.0.0-py3-none-any.whl", 2026)],
    "current": [("current-2.0-py3-none-any.whl", 2026), ("current-1.0-py3-none-any.whl", 2020)],
    "newer": [("newer-1.9-py3-none-any.whl", 2026), ("newer-2.0.tar.gz", 2026)],
}


class Index(Handler):
    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        listed = [{"filename": file, "upload-time": f"{year}-01-01T00:00:00Z"} for file, year in FILES.get(name, [])]
        body = json.dumps({"files": listed}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    with served(Index) as host:
        yield f"http://{host}/simple"


def locked(**versions: str) -> Lock:
    wheels = tuple(
        Wheel(name=n, version=v, file=f"{n}-{v}-py3-none-any.whl", sha256="0", size=9) for n, v in versions.items()
    )
    return Lock(asked=Asked(requirements=tuple(versions), python="3.13", platform="linux/amd64"), wheels=wheels)


@pytest.mark.parametrize(
    ("name", "version", "sentence"),
    [
        (
            "deepspeed",
            "0.3.1.dev3",
            "6 years older than 0.19.8, the newest release.*\\nname deepspeed under source-packages",
        ),
        ("reserved", "0.0.0", "is a placeholder"),
    ],
)
def test_what_nobody_means_is_refused_unless_it_is_named(index: str, name: str, version: str, sentence: str) -> None:
    lock = locked(**{name: version})
    with pytest.raises(RefusedError, match=sentence):
        locked_releases(lock, [name], index, mirrors.load())
    (release,) = locked_releases(lock, [f"{name}=={version}"], index, mirrors.load())
    assert release.version == version


def test_a_newer_release_that_is_there_as_source_alone_is_named(index: str) -> None:
    current, newer = locked_releases(locked(current="2.0", newer="1.9"), ["current", "newer"], index, mirrors.load())
    assert (current.newest, current.warning) == ("2.0", "")
    assert newer.warning == "2.0 is there as source alone: name newer under source-packages to have it built"


def test_an_index_that_lists_nothing_refuses_nothing(index: str) -> None:
    (release,) = locked_releases(locked(unlisted="0.1"), ["unlisted"], index, mirrors.load())
    assert (release.newest, release.warning) == ("", "")
