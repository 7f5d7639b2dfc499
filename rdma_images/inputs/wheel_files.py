"""Find the file of a locked wheel on the package index, download and verify it."""

import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import requests
from packaging.utils import canonicalize_name

from rdma_images.core import http, locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.plain import decode_json
from rdma_images.inputs import download_store, web
from rdma_images.inputs.download import DOWNLOAD_TIMEOUT_SECONDS, ChecksumError, DownloadSettings, download_verified
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Wheel, wheel_file_name

RETRY_POLICY = http.RetryPolicy(statuses=http.FAILING, retry_absent=True)
# The simple repository API, as JSON (PEP 691) where the index speaks it.
ACCEPTED = {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}


def fetch_wheel(wheel: Wheel, index: str, job: DownloadSettings) -> Path:
    """Return the verified file of a wheel, under its own name; `remove_wheel` removes it.

    A part that an earlier run left is resumed.

    Args:
        index: The package index's address.

    Raises:
        RdmaImagesError: The file does not arrive.
        ChecksumError: The file is not the locked one; it is removed.
    """
    file = _folder(wheel) / wheel.file
    with locking.hold(f"wheel-{wheel.sha256[:16]}", f"downloading {wheel.file}", job.progress):
        if file.exists() and _is_locked_file(wheel, file):
            return file
        part = download_store.root() / "partial" / wheel.sha256 / wheel.file
        address = wheel_address(wheel, index, job.mirrors)
        download_verified(address, part, replace(job, name=wheel.file), lambda file: _verify(wheel, address, file))
        file.parent.mkdir(parents=True, exist_ok=True)
        part.replace(file)
        shutil.rmtree(part.parent)
    return file


def remove_wheel(wheel: Wheel) -> None:
    """Remove the file of a wheel with its folder."""
    shutil.rmtree(_folder(wheel), ignore_errors=True)


def wheel_address(wheel: Wheel, index: str, mirrors: Mirrors) -> str:
    """Return the address of a wheel's file. Raises RdmaImagesError where there is none."""
    for file in index_files(wheel.name, index, mirrors):
        if wheel_file_name(file["url"]) == wheel.file:
            return str(file["url"]).partition("#")[0]
    raise RdmaImagesError(
        f"{wheel.file}: the package index has no such file on {_page(wheel.name, index)}\n"
        "lock again, or name an index that has it as package-index in mirrors.yaml"
    )


def index_files(name: str, index: str, mirrors: Mirrors) -> list[dict[str, Any]]:
    """Return the files that an index lists of a package, with what it tells of each.

    Returns:
        Each with `filename` and `url`; where the index speaks JSON also `upload-time` and `yanked`, see PEP 691.

    Raises:
        RdmaImagesError: The index does not answer, or with something else.
    """
    page = _page(name, index)
    if folder := web.local_path(page):
        text = (folder / "index.html").read_text(encoding="utf-8") if folder.is_dir() else ""
        return _html_files(text, (folder / "index.html").resolve().as_uri())
    try:
        with web.request("GET", page, mirrors, DOWNLOAD_TIMEOUT_SECONDS, ACCEPTED, RETRY_POLICY) as response:
            text = response.content.decode("utf-8", "replace")
            is_json = "json" in response.headers.get("Content-Type", "")
    except (web.StatusError, requests.RequestException) as error:
        reason = str(error) if isinstance(error, web.StatusError) else web.describe_error(error, mirrors)
        raise RdmaImagesError(
            f"{page}: {reason}\ntry later, or name another index as package-index in mirrors.yaml"
        ) from None
    if not is_json:
        return _html_files(text, page)
    try:
        return [
            {**file, "filename": str(file["filename"]), "url": urljoin(page, str(file["url"]))}
            for file in decode_json(text)["files"]
        ]
    except (ValueError, KeyError, TypeError):
        raise _no_list_of_files(page) from None


def _page(name: str, index: str) -> str:
    return f"{index.rstrip('/')}/{canonicalize_name(name)}/"


def _html_files(text: str, page: str) -> list[dict[str, Any]]:
    parser = _Links()
    try:
        parser.feed(text)
        return [{"filename": wheel_file_name(link), "url": urljoin(page, link)} for link in parser.links]
    except (AssertionError, ValueError):  # html.parser asserts on a section like <![DOCTYPE html>
        raise _no_list_of_files(page) from None


def _no_list_of_files(page: str) -> RdmaImagesError:
    return RdmaImagesError(
        f"{page}: the answer is not a list of files\nname another index as package-index in mirrors.yaml"
    )


class _Links(HTMLParser):
    """The links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the address of a link."""
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _is_locked_file(wheel: Wheel, file: Path) -> bool:
    return file.stat().st_size == wheel.size and download_store.digest(file, "sha256") == wheel.sha256


def _verify(wheel: Wheel, address: str, file: Path) -> None:
    if not _is_locked_file(wheel, file):
        raise ChecksumError(
            f"{wheel.file}: {address} is not the locked file: expected {wheel.size} bytes, sha256:{wheel.sha256}, "
            f"found {file.stat().st_size} bytes, sha256:{download_store.digest(file, 'sha256')}; nothing was kept\n"
            "do not use the file: the index or mirror has another one"
        )


def _folder(wheel: Wheel) -> Path:
    return download_store.root() / "wheels" / wheel.sha256
