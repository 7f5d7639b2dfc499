"""The platforms that images are built for, and the names of their processors elsewhere."""

from collections.abc import Mapping
from typing import Literal

Platform = Literal["linux/amd64", "linux/arm64"]

# As the kernel (uname -m), wheels and ELF's readers name them.
MACHINES: Mapping[Platform, str] = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


def machine_of(platform: str) -> str:
    """Return the machine of a platform, with or without a variant; "" for a platform that no image is built for."""
    name = "/".join(platform.split("/")[:2])
    return next((machine for known, machine in MACHINES.items() if known == name), "")
