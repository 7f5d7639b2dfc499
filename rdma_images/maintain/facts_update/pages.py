"""Read vendors' release pages for versions that the facts lack, for people to check."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import requests

from rdma_images.components.aws_ofi_nccl import AWS_OFI_NCCL
from rdma_images.components.efa_installer import EFA_INSTALLER
from rdma_images.core import versions
from rdma_images.facts import Facts
from rdma_images.inputs import web
from rdma_images.inputs.mirrors import Mirrors

PAGE_TIMEOUT_SECONDS = (3.0, 10.0)  # seconds to connect, seconds without a byte
_CELL = re.compile(r"<tr[^>]*>\s*<td[^>]*>(?:\s|<[^>]+>)*(\d+\.\d+\.\d+)\b")


@dataclass(frozen=True)
class ReleaseNews:
    """A page's releases that the facts lack; `newer` is empty for none or no answer."""

    component: str
    address: str
    newer: tuple[str, ...]
    error: str = ""  # why the page could not be read


@dataclass(frozen=True)
class ReleasePage:
    """A page that lists the releases of a component."""

    component: str
    address: str
    releases: Callable[[str], list[str]]  # the versions in its text
    recorded: Callable[[Facts], list[str]]


def first_cells(html: str) -> list[str]:
    """Return the versions in the first cells of a page's tables."""
    return _CELL.findall(html)


def tag_names(text: str) -> list[str]:
    """Return the versions in GitHub's list of releases or tags, without candidates."""
    names = (entry.get("tag_name") or entry.get("name", "") for entry in json.loads(text))
    matches = (re.fullmatch(r"v?(\d+(?:\.\d+)+)(?:-aws)?", name) for name in names)
    return [match[1] for match in matches if match]


PAGES = (
    ReleasePage(
        EFA_INSTALLER.name,
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-changelog.html",
        first_cells,
        lambda facts: list(facts.efa_installer.releases),
    ),
    ReleasePage(
        AWS_OFI_NCCL.name,
        "https://api.github.com/repos/aws/aws-ofi-nccl/releases?per_page=100",
        tag_names,
        lambda facts: list(facts.aws_ofi_nccl.releases),
    ),
)


def news(facts: Facts, mirrors: Mirrors) -> list[ReleaseNews]:
    """Return the news of all pages, read at once; an error is news, too."""
    with ThreadPoolExecutor(len(PAGES)) as pool:
        return list(pool.map(lambda page: _news(page, facts, mirrors), PAGES))


def _news(page: ReleasePage, facts: Facts, mirrors: Mirrors) -> ReleaseNews:
    try:
        with web.request("GET", page.address, mirrors, PAGE_TIMEOUT_SECONDS) as response:
            listed = page.releases(response.text)
    except (requests.RequestException, web.StatusError, ValueError) as error:
        return ReleaseNews(page.component, page.address, (), f"not read: {web.describe_error(error, mirrors)}")
    if not listed:
        return ReleaseNews(
            page.component, page.address, (), "answered, but lists no version in the form that was expected"
        )
    known_keys = {versions.sort_key(version) for version in page.recorded(facts)}
    newest = max(known_keys)
    newer = {version for version in listed if versions.sort_key(version) > newest}
    return ReleaseNews(page.component, page.address, tuple(versions.newest_first(newer)))
