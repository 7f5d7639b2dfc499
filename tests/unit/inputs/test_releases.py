"""A lock is compared with the index: nobody means placeholders and old releases."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from packaging.pylock import Package, PackageWheel
from packaging.utils import canonicalize_name
from packaging.version import Version

from rdma_images.core.errors import RefusedError
from rdma_images.inputs import mirrors
from rdma_images.inputs.releases import require_current
from rdma_images.inputs.wheels import LockRequest
from tests.support.publish_doubles import Handler, served

HASH = "0" * 64
FILES = {
    "deepspeed": [("deepspeed-0.3.1.dev3-py3-none-any.whl", 2020), ("deepspeed-0.19.8.tar.gz", 2026)],
    "reserved": [("reserved-0.0.0-py3-none-any.whl", 2026)],
    "dev": [("dev-0.0.0.dev0-py3-none-any.whl", 2026)],
    "first": [("first-0.0.1-py3-none-any.whl", 2026), ("first-3.1.tar.gz", 2026)],
    "small": [("small-0.0.1-py3-none-any.whl", 2026)],
    "tiny": [("tiny-0.0.1-py3-none-any.whl", 2026), ("tiny-0.0.2.tar.gz", 2026)],
    "current": [("current-2.0-py3-none-any.whl", 2026), ("current-1.0-py3-none-any.whl", 2020)],
    "newer": [("newer-1.9-py3-none-any.whl", 2026), ("newer-2.0.tar.gz", 2026)],
}


class IndexHandler(Handler):
    """An index as it should be, and below /undated/ and /pages/ those that tell less."""

    def do_GET(self) -> None:
        _, kind, name, *_ = self.path.split("/")
        files = FILES.get(name, [])
        if kind == "pages":
            body = "".join(f'<a href="../x/{file}#sha256={HASH}">{file}</a>\n' for file, _ in files)
            answer, content_type = f"<!DOCTYPE html><html><body>{body}</body></html>", "text/html; charset=utf-8"
        else:
            listed = [
                {"filename": file, "url": f"../../{file}", "hashes": {"sha256": HASH}}
                | ({"upload-time": f"{year}-01-01T00:00:00Z"} if kind == "simple" else {})
                for file, year in files
            ]
            answer = json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": listed})
            content_type = "application/vnd.pypi.simple.v1+json"
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(answer.encode())))
        self.end_headers()
        self.wfile.write(answer.encode())


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    with served(IndexHandler) as host:
        yield f"http://{host}"


def check(name: str, version: str, index: str, requirement: str = "") -> None:
    """Check a wheel that uv took of an index."""
    file = f"{name}-{version}-py3-none-any.whl"
    uploaded = datetime(dict(FILES[name])[file], 1, 1, tzinfo=UTC) if index.endswith("simple") else None
    wheel = PackageWheel(name=file, url=f"{index}/{file}", hashes={"sha256": HASH}, upload_time=uploaded)
    package = Package(name=canonicalize_name(name), version=Version(version), wheels=[wheel])
    request = LockRequest(requirements=(requirement or name,), python="3.13", platform="linux/amd64")
    require_current([(package, wheel)], request, index, mirrors.load())


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
    with pytest.raises(RefusedError, match=sentence):
        check(name, version, f"{index}/simple")
    check(name, version, f"{index}/simple", f"{name}=={version}")


@pytest.mark.parametrize(
    ("name", "version"), [("small", "0.0.1"), ("tiny", "0.0.1"), ("current", "2.0"), ("newer", "1.9")]
)
def test_a_release_that_somebody_may_mean_is_taken(index: str, name: str, version: str) -> None:
    check(name, version, f"{index}/simple")


@pytest.mark.parametrize("kind", ["undated", "pages"])
def test_an_index_without_days_still_shows_a_pre_release(index: str, kind: str) -> None:
    with pytest.raises(RefusedError, match=r"0\.3\.1\.dev3 is a pre-release older than 0\.19\.8, the newest release"):
        check("deepspeed", "0.3.1.dev3", f"{index}/{kind}")
    check("current", "1.0", f"{index}/{kind}")
