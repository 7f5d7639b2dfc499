"""Digests that no vendor publishes: read once by `invoke lock`, compared ever after."""

import re
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, Field

from rdma_images.core import atomic, files, paths, yaml_file

HEADER = "# Written by `invoke lock`; a change here is a change of what gets built.\n"


def check_digest(text: str) -> str:
    """Return the digest as it is written in a lock. Raises ValueError if it is no digest."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        raise ValueError(f"{text!r} is no digest: write sha256: and 64 hexadecimal digits")
    return text


class PinsFile(yaml_file.Strict):
    """locks/bases.yaml or locks/downloads.yaml: "sha256:…" by image reference, or by source."""

    pins: dict[str, Annotated[str, AfterValidator(check_digest)]] = Field(default_factory=dict)


def bases() -> dict[str, str]:
    """Return the digests of pulled bases by reference ("docker.io/library/ubuntu:24.04")."""
    return _read_pins(paths.LOCKS / "bases.yaml")


def downloads() -> dict[str, str]:
    """Return the digests of downloads for which no vendor states one, by source."""
    return _read_pins(paths.LOCKS / "downloads.yaml")


def save(name: str, new_pins: dict[str, str]) -> None:
    """Add digests to a file ("bases.yaml"), sorted by name."""
    file = paths.LOCKS / name
    pins = dict(sorted((_read_pins(file) | new_pins).items()))
    atomic.write(file, HEADER + yaml.safe_dump({"pins": pins}, sort_keys=False, width=200))


def _read_pins(file: Path) -> dict[str, str]:
    return yaml_file.load(file, PinsFile).pins if files.exists(file) else {}
