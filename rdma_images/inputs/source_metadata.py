"""What the source of a package says that it requires, for a package whose setup.py cannot be run to ask."""

import io
import re
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from email.parser import HeaderParser

import requests
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from rdma_images.core.errors import RdmaImagesError
from rdma_images.inputs import web, wheel_files
from rdma_images.inputs.mirrors import Mirrors

TIMEOUT = (10.0, 60.0)  # seconds to connect, seconds without a byte
LISTS = re.compile(r"[^/]+/(?:[^/]+/)?[^/]+\.egg-info/requires\.txt")  # of setuptools, beside PKG-INFO
METADATA = re.compile(r"[^/]+/PKG-INFO")


def requirements(name: str, version: str, index: str, mirrors: Mirrors) -> tuple[str, ...]:
    """Return what the source of a release requires, as the machine on which it was made wrote it down.

    Raises:
        RdmaImagesError: The index has no such source, or it says nothing.
    """
    address = next(iter(_sources(name, version, wheel_files.file_addresses(name, index, mirrors))), None)
    if address is None:
        raise RdmaImagesError(f"{name} {version}: the package index has no source of it\nname another version")
    try:
        with web.request("GET", address, mirrors, TIMEOUT) as response:
            return _read_requirements(io.BytesIO(response.content))
    except (web.StatusError, requests.RequestException) as error:
        raise RdmaImagesError(f"{address}: {web.describe_error(error, mirrors)}\ntry again") from None
    except (tarfile.TarError, OSError, StopIteration):
        raise RdmaImagesError(
            f"{name} {version}: its source does not say what it requires\nname another version"
        ) from None


def _sources(name: str, version: str, addresses: Iterable[str]) -> Iterable[str]:
    for address in addresses:
        file = address.partition("#")[0].rpartition("/")[2]
        with suppress(InvalidSdistFilename):
            is_release = parse_sdist_filename(file) == (canonicalize_name(name), Version(version))
            if is_release and file.endswith(".tar.gz"):
                yield address


def _read_requirements(archive: io.BytesIO) -> tuple[str, ...]:
    """Return the requirements in a source's PKG-INFO, or of older setuptools in the list beside it."""
    with tarfile.open(fileobj=archive, mode="r:gz") as source:
        texts = {
            member.name: (source.extractfile(member) or io.BytesIO()).read().decode(errors="replace")
            for member in source
            if member.isfile() and (METADATA.fullmatch(member.name) or LISTS.fullmatch(member.name))
        }
    metadata = HeaderParser().parsestr(next(texts[name] for name in texts if METADATA.fullmatch(name)))
    if listed := metadata.get_all("Requires-Dist"):
        return tuple(listed)
    lines = [line.strip() for name, text in texts.items() if LISTS.fullmatch(name) for line in text.splitlines()]
    sections = next((number for number, line in enumerate(lines) if line.startswith("[")), len(lines))
    return tuple(line for line in lines[:sections] if line)
