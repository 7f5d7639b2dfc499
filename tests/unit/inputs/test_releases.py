"""A lock is compared with the index: nobody means placeholders and old releases."""

import json
from collections.abc import Iterator

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.inputs import mirrors
from rdma_images.inputs.releases import require_current
from rdma_images.inputs.wheels import Lock, LockRequest, Wheel
from tests.support.publish_doubles import Handler, served

FILES = {
    "deepspeed": [("deepspeed-0.3.1.dev3-py3-none-any.whl", 2020, 9), ("deepspeed-0.19.8.tar.gz", 2026, 900)],
    "reserved": [("reserved-0.0.0-py3-none-any.whl", 2026, 9)],
    "dev": [("dev-0.0.0.dev0-py3-none-any.whl", 2026, 9)],
    "first": [("first-0.0.1-py3-none-any.whl", 2026, 9), ("first-3.1.tar.gz", 2026, 900_000)],
    "small": [("small-0.0.1-py3-none-any.whl", 2026, 9)],
    "tiny": [("tiny-0.0.1-py3-none-any.whl", 2026, 9), ("tiny-0.0.2.tar.gz", 2026, 12)],
    "current": [("current-2.0-py3-none-any.whl", 2026, 9), ("current-1.0-py3-none-any.whl", 2020, 9)],
    "newer": [("newer-1.9-py3-none-any.whl", 2026, 9), ("newer-2.0.tar.gz", 2026, 9)],
}


class IndexHandler(Handler):
    """An index as it should be, and below /undated/ and /pages/ those that tell less."""

    def do_GET(self) -> None:
        _, kind, name, *_ = self.path.split("/")
        listed = [
            {"filename": file, "url": f"../../{file}", "size": size, "upload-time": f"{year}-01-01T00:00:00Z"}
            for file, year, size in FILES.get(name, [])
        ]
        if kind == "pages":
            body = "".join(f'<a href="../x/{file["filename"]}#sha256=0">{file["filename"]}</a>\n' for file in listed)
            answer, content_type = f"<!DOCTYPE html><html><body>{body}</body></html>", "text/html; charset=utf-8"
        else:
            if kind == "undated":
                listed = [{"filename": file["filename"], "url": file["url"]} for file in listed]
            answer, content_type = json.dumps({"files": listed}), "application/vnd.pypi.simple.v1+json"
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(answer.encode())))
        self.end_headers()
        self.wfile.write(answer.encode())


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    with served(IndexHandler) as host:
        yield f"http://{host}"


def locked(**versions: str) -> Lock:
    wheels = tuple(
        Wheel(name=n, version=v, file=f"{n}-{v}-py3-none-any.whl", sha256="0", size=9) for n, v in versions.items()
    )
    return Lock(request=LockRequest(requirements=tuple(versions), python="3.13", platform="linux/amd64"), wheels=wheels)


@pytest.mark.parametrize(
    ("name", "version", "sentence"),
    [
        (
            "deepspeed",
            "0.3.1.dev3",
            "6 years older than 0.19.8, the newest release.*\\nname deepspeed under source-packages",
        ),
        ("reserved", "0.0.0", "is a placeholder"),
        ("dev", "0.0.0.dev0", "is a placeholder"),
        ("first", "0.0.1", "is a placeholder.*\\nname first under source-packages, where 3.1 is"),
    ],
)
def test_what_nobody_means_is_refused_unless_it_is_named(index: str, name: str, version: str, sentence: str) -> None:
    lock = locked(**{name: version})
    with pytest.raises(RefusedError, match=sentence):
        require_current(lock, [name], f"{index}/simple", mirrors.load())
    require_current(lock, [f"{name}=={version}"], f"{index}/simple", mirrors.load())


@pytest.mark.parametrize(
    ("name", "version"),
    [("small", "0.0.1"), ("tiny", "0.0.1"), ("current", "2.0"), ("newer", "1.9"), ("unlisted", "0.1")],
)
def test_a_release_that_somebody_may_mean_is_taken(index: str, name: str, version: str) -> None:
    require_current(locked(**{name: version}), [name], f"{index}/simple", mirrors.load())


@pytest.mark.parametrize("kind", ["undated", "pages"])
def test_an_index_without_days_still_shows_a_pre_release(index: str, kind: str) -> None:
    with pytest.raises(RefusedError, match=r"0\.3\.1\.dev3 is a pre-release older than 0\.19\.8, the newest release"):
        require_current(locked(deepspeed="0.3.1.dev3"), ["deepspeed"], f"{index}/{kind}", mirrors.load())
    require_current(locked(current="1.0"), ["current"], f"{index}/{kind}", mirrors.load())
