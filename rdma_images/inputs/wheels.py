"""The request of a lock to the package index, and the exact wheels that answer it."""

import hashlib
import json
import re
from collections.abc import Iterable

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename
from pydantic import Field

from rdma_images.core import yaml_file
from rdma_images.core.image import Platform

# The C library of Ubuntu 22.04, the oldest base: one lock then serves every base with the same python, and a wheel is
# the same layer in all of them. Source: jammy's libc6, 2.35-0ubuntu3.
GLIBC = "2.35"

# What a lock's name says with its version.
_VERSIONED = re.compile(r"(?:nvidia-)?(torch|nccl)(?:-cu\d+)?==([^;]+)")
# Fields of a request that its text has only where they are not empty.
_SELDOM = ("constraints", "sources", "installed", "no_deps")
_TOOLKIT = re.compile(r"nvidia-cuda-nvcc==(.+)\.\*")


class Wheel(yaml_file.Strict):
    """One wheel file, or the source of a package that has none; `size` in bytes.

    `origin` is the place of a package that no index has, see core/local_package.py; a project or commit has no file.
    """

    name: str
    version: str
    file: str = ""
    sha256: str = ""
    size: int = 0
    origin: str = ""

    @property
    def is_source(self) -> bool:
        """Return whether it is to be built first."""
        return not self.file.endswith(".whl")

    @property
    def subfolder(self) -> str:
        """Return the folder of a repository that has the project; "" for the topmost."""
        return self.origin.partition("#subdirectory=")[2]

    @property
    def title(self) -> str:
        """Return name and version; for a project or commit, its origin."""
        return f"{self.name} {self.version or f'from {self.origin}'}"

    @property
    def requirement(self) -> str:
        """Return a requirements line that only this very file satisfies."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"

    @property
    def tags(self) -> frozenset[Tag]:
        """Return the tags of its file name: what it runs on."""
        return parse_wheel_filename(self.file)[3]


def total_size(wheels: Iterable[Wheel]) -> int:
    """Return the bytes to download."""
    return sum(wheel.size for wheel in wheels)


class Tool(yaml_file.Strict):
    """A program of the builder, as wheels for every platform that may be the builder's."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def requirement(self) -> str:
        """Return a requirements line that only these files satisfy."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{value}" for value in self.hashes)])


class LockRequest(yaml_file.Strict):
    """The requirements of a lock; the same request has the same lock."""

    requirements: tuple[str, ...]
    overrides: tuple[str, ...] = ()  # stronger than what a package pins
    constraints: tuple[str, ...] = ()  # limits for what other packages bring
    sources: tuple[str, ...] = ()  # packages that may come without a wheel
    installed: tuple[str, ...] = ()  # "name==version" of what is there and stays: in no lock, and required by none
    no_deps: tuple[str, ...] = ()  # names of packages whose own requirements do not count
    python: str  # "3.13"
    platform: Platform
    glibc: str = GLIBC

    @property
    def packages(self) -> tuple[tuple[str, ...], ...]:
        """Return what a target asks for beside torch and NCCL: packages, constraints, names of sources, of no_deps."""
        named = tuple(line for line in self.requirements if not _VERSIONED.fullmatch(line))
        return named, self.constraints, self.sources, self.no_deps

    @property
    def without_packages(self) -> "LockRequest":
        """Return the request for torch and NCCL alone."""
        versioned = tuple(line for line in self.requirements if _VERSIONED.fullmatch(line))
        return self.model_copy(update={"requirements": versioned, "constraints": (), "sources": (), "no_deps": ()})

    @property
    def key(self) -> str:
        """Return the lock's file name: "torch-2.15.0+numpy-py3.13-linux-amd64"."""
        matches = [_VERSIONED.fullmatch(line) for line in (*self.requirements, *self.overrides)]
        versions = "-".join(f"{match[1]}-{match[2]}" for match in matches if match)
        compiler = [match[1] for match in map(_TOOLKIT.fullmatch, self.requirements) if match]
        if compiler and not versions:
            return f"toolkit-{compiler[0]}-{self.platform.replace('/', '-')}"
        lines = list(self.packages[0])
        lines += [f"{line} at most" for line in self.constraints]
        lines += [f"{name} from source" for name in self.sources]
        lines += [f"{name} alone" for name in self.no_deps]
        lines += [f"{line} there" for line in self.installed]
        if len(lines) > 3 or not all(re.fullmatch(r"[a-z0-9-]+", line) for line in lines):
            lines = [hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]]
        packages = "+".join([versions, *lines]).lstrip("+")
        return f"{packages}-py{self.python}-{self.platform.replace('/', '-')}"


class Lock(yaml_file.Strict):
    """Every wheel of an image, by name; one file a package."""

    request: LockRequest = Field(validation_alias="asked")  # its key in locks/
    wheels: tuple[Wheel, ...]

    @property
    def sources(self) -> tuple[Wheel, ...]:
        """Return the packages built first or kept beside matrix.yaml, installed last."""
        return tuple(wheel for wheel in self.wheels if wheel.is_source or wheel.origin)

    def text(self) -> str:
        """Return the lock file's text, one wheel a line; equal locks have equal texts."""
        unsaid = {name for name in _SELDOM if not getattr(self.request, name)}
        request_text = json.dumps(self.request.model_dump(mode="json", exclude=unsaid), indent=2).replace("\n", "\n  ")
        wheels = ",\n".join(
            f"    {json.dumps(wheel.model_dump(mode='json', exclude_defaults=True))}" for wheel in self.wheels
        )
        return f'{{\n  "asked": {request_text},\n  "wheels": [\n{wheels}\n  ]\n}}\n'
