"""Digests that no vendor publishes beside the file: read once by `invoke lock`, kept in locks/, compared ever after."""

from pathlib import Path

import yaml
from pydantic import Field, field_validator

from rdma_images import atomic, paths, yamlfile

HEAD = "# Written by `invoke lock`; a change here is a change of what gets built.\n"
DOCKER_HUB = "docker.io"


class File(yamlfile.Strict):
    """locks/bases.yaml or locks/downloads.yaml: "sha256:…" by image reference, or by source."""

    pins: dict[str, str] = Field(default_factory=dict)

    @field_validator("pins")
    @classmethod
    def _are_digests(cls, pins: dict[str, str]) -> dict[str, str]:
        for name, digest in pins.items():
            algorithm, _, value = digest.partition(":")
            if algorithm != "sha256" or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
                raise ValueError(f"{name}: {digest!r} is no digest; one is sha256: and 64 hexadecimal digits")
        return pins


def bases(folder: Path = paths.LOCKS) -> dict[str, str]:
    """The digests of pulled bases, by their full reference ("docker.io/library/ubuntu:24.04")."""
    return _read(folder / "bases.yaml")


def downloads(folder: Path = paths.LOCKS) -> dict[str, str]:
    """The digests of downloads for which no vendor states one, by source."""
    return _read(folder / "downloads.yaml")


def keep(file: str, found: dict[str, str], folder: Path = paths.LOCKS) -> None:
    """Add digests to a file ("bases.yaml"), in the order of their names; the same digests give the same text."""
    pins = dict(sorted((_read(folder / file) | found).items()))
    atomic.write(folder / file, HEAD + yaml.safe_dump({"pins": pins}, sort_keys=False, width=200))


def full(reference: str) -> str:
    """An image's reference with its registry: "ubuntu:24.04" is docker.io/library/ubuntu:24.04."""
    first, _, rest = reference.partition("/")
    if rest and ("." in first or ":" in first or first == "localhost"):
        return reference
    return f"{DOCKER_HUB}/{reference}" if rest else f"{DOCKER_HUB}/library/{reference}"


def _read(file: Path) -> dict[str, str]:
    return yamlfile.load(file, File).pins if file.exists() else {}
