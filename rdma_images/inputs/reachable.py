"""Ask one address whether it has a source, and how large it is."""

import requests

from rdma_images.core import files, http
from rdma_images.core.errors import RdmaImagesError, first_line
from rdma_images.core.sizes import format_bytes
from rdma_images.inputs import web
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.registry import client
from rdma_images.registry import connection as registry_http
from rdma_images.registry.reference import DOCKER_HUB, HUB_HOST, parse_reference

TIMEOUT_SECONDS = (5.0, 15.0)  # to connect, to the first byte: on a busy machine too
RETRY_POLICY = http.RetryPolicy(retries=1, longest_wait=2.0)

Reachability = tuple[bool, str]  # whether it has the source, and the reason or size in words


def ask_download(address: str, mirrors: Mirrors) -> Reachability:
    """Return whether a file is there, and the reason or its size in words."""
    try:
        size = web.file_size(address, mirrors, TIMEOUT_SECONDS, RETRY_POLICY)
    except web.StatusError as error:
        return False, str(error)
    except requests.RequestException as error:
        return False, web.describe_error(error, mirrors)
    except files.FileError as error:
        return False, first_line(error)
    return True, "answers" if size is None else format_bytes(size)


def ask_apt(address: str, suite: str, mirrors: Mirrors) -> Reachability:
    """Return whether an apt archive has the signed index of a suite, and the reason or its size in words."""
    is_reachable, reason = ask_download(f"{address}/dists/{suite}/InRelease", mirrors)
    return is_reachable, f"{suite}: {reason}"


def ask_index(address: str, project: str, mirrors: Mirrors) -> Reachability:
    """Return whether a package index knows a project, and the reason or its page's size in words."""
    return ask_download(f"{address.rstrip('/')}/{project}/", mirrors)


def ask_registry(reference: str, mirrors: Mirrors) -> Reachability:
    """Return whether a registry has the image with this tag or digest, and the reason or its digest in words."""
    try:
        digest = registry_digest(reference, mirrors)
    except RdmaImagesError as error:
        return False, str(error)
    return (True, digest[:19]) if digest else (False, "the registry has no such image")


def registry_digest(reference: str, mirrors: Mirrors) -> str | None:
    """Return the digest of a full reference in its registry; None for no such image.

    Raises RdmaImagesError when the registry does not answer, or wants another login.
    """
    parsed = parse_reference(reference)
    connection = registry_http.Connection(
        HUB_HOST if parsed.host == DOCKER_HUB else parsed.host,
        lambda: mirrors.login(parsed.host),
        ca=mirrors.ca_bundle,
        timeout=TIMEOUT_SECONDS,
        retry_policy=RETRY_POLICY,
    )
    return client.Repository(connection, parsed.repository).find_digest(parsed.selector)
