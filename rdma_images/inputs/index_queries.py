"""Ask the package index with uv: which releases go together, and which files a release has."""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.pylock import Package, Pylock
from uv import find_uv_bin

from rdma_images.core.errors import RdmaImagesError
from rdma_images.inputs import package_index
from rdma_images.inputs.mirrors import Mirrors

# Later than any: uv leaves out the wheels that only an older one takes, and reads no upper bound.
LATEST_PYTHON = "3.30"
# How uv reports an index that does not answer, or not to this user; without these words it has no such wheels.
UNREACHABLE = re.compile(r"Failed to fetch: `?(\S+?)`?(?= |$)|An index(?: URL)? \((\S+)\) (?:could not be|returned)")


class NoFittingReleaseError(RdmaImagesError):
    """The package index answers, and has nothing that fits; `words` are uv's."""

    def __init__(self, subject: str, words: str) -> None:
        self.words = words
        super().__init__(f"{subject}: {words}\nname another version, or an index that has it as package-index")


def compile_requirements(
    subject: str, files: Mapping[str, str | bytes], options: Sequence[str], index: str, mirrors: Mirrors
) -> Sequence[Package]:
    """Run `uv pip compile` on requirements.in, away from any project's own settings, and return the packages.

    Args:
        subject: What the requirements are for, as an error begins.
        files: The content of requirements.in, and of what `options` name beside it.
        options: Further ones of uv's.

    Raises:
        NoFittingReleaseError: The index has nothing that fits.
        RdmaImagesError: The index does not answer.
    """
    command = [find_uv_bin(), "pip", "compile", "requirements.in", "--format", "pylock.toml", "--no-header", "--quiet"]
    command += ["--python", sys.executable, *options]  # which spares uv a search for others
    # Through the environment: an address with its login must not show up in a process list.
    environ = package_index.without_uv(os.environ)
    environ |= {"UV_DEFAULT_INDEX": mirrors.with_login(index), "SSL_CERT_FILE": str(mirrors.ca_bundle)}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        process = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    if process.returncode == 0:
        return Pylock.from_dict(tomllib.loads(process.stdout)).packages
    words = " ".join(process.stderr.split()).removeprefix("error: ")  # uv breaks its lines
    if match := UNREACHABLE.search(words):
        raise RdmaImagesError(
            f"{subject}: {match[1] or match[2]} is unreachable: {words}\n"
            "try later, or name an index that answers as package-index in mirrors.yaml"
        )
    raise NoFittingReleaseError(subject, words)


def find_release(name: str, version: str, index: str, mirrors: Mirrors, python: str = LATEST_PYTHON) -> Package:
    """Return a release with its files: the source, and the wheels for `python` and later ones.

    Raises NoFittingReleaseError where the index has no such release, and RdmaImagesError where it does not answer.
    """
    options = ("--no-config", "--no-deps", "--universal", "--python-version", python)
    requirement = f"{name}=={version}"
    return compile_requirements(requirement, {"requirements.in": requirement}, options, index, mirrors)[0]
