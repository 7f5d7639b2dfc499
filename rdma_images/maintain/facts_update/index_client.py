"""Read releases, files and pins of wheels from the package index, with uv."""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from rdma_images.core import versions
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import MACHINES, Platform
from rdma_images.facts import Facts
from rdma_images.inputs import package_index

# The C library of the oldest base; a wheel that asks for a newer one fits none of the bases.
MANYLINUX = "manylinux_2_35"
PYTHONS = tuple(f"3.{minor}" for minor in range(8, 20))  # oldest first; from the oldest that torch 2.2 has a wheel for
RESOLUTION_SECONDS = 300  # for one resolution; a cold one of torch takes 10 s here


@dataclass(frozen=True)
class IndexClient:
    """A package index, and the certificate authorities to trust."""

    address: str
    ca: Path

    def unknown(self, package: str, floor: str, recorded: Iterable[str], pythons: Iterable[str]) -> list[str]:
        """Return releases from `floor` on that are not `recorded` and that a Python can run."""
        releases: list[str] = []
        for python in pythons:
            while True:
                without = ",".join(f"!={version}" for version in [*recorded, *releases])
                pins = self._compile(
                    f"{package}>={floor},{without}", "--no-deps", "--universal", f"--python-version={python}"
                )
                if pins is None:
                    break
                releases.append(_pins(pins)[package])
        return releases

    def wheels(self, package: str, version: str) -> list[str]:
        """Return the addresses of the wheels of a release.

        Raises RdmaImagesError where the index does not answer or has no such release.
        """
        options = ("--no-deps", "--universal", "--format", "pylock.toml")
        for python in PYTHONS:  # uv leaves out wheels for pythons older than the requested one
            if text := self._compile(f"{package}=={version}", *options, f"--python-version={python}"):
                packages = tomllib.loads(text)["packages"]
                return [wheel.get("url") or wheel["path"] for entry in packages for wheel in entry.get("wheels", ())]
        raise RdmaImagesError(f"the package index has no wheels of {package} {version}\nset an index that has them")

    def pins(self, requirement: str, platform: Platform, python: str) -> dict[str, str]:
        """Return what an installation of `requirement` would bring, by name.

        Metadata decides it, no wheel is sent.
        """
        options = ("--python-platform", f"{MACHINES[platform]}-{MANYLINUX}", "--python-version", python)
        text = self._compile(requirement, *options)
        if text is None:
            raise RdmaImagesError(
                f"the package index has no {requirement} for {platform}, python {python}\nset an index that has it"
            )
        return _pins(text)

    def _compile(self, requirement: str, *options: str) -> str | None:
        """Return uv's resolution of one requirement; None when there is none."""
        command = [find_uv_bin(), "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate", "--no-config"]
        command += ["--only-binary", ":all:", "--no-python-downloads", *options]
        command += ["--python", sys.executable]  # spares uv a search for others
        # Through the environment: an address with a password in it must not show up in a process list.
        environ = package_index.without_uv(os.environ)
        environ |= {"UV_DEFAULT_INDEX": self.address, "SSL_CERT_FILE": str(self.ca)}
        with tempfile.TemporaryDirectory() as folder:  # away from any project's own settings
            try:
                process = subprocess.run(
                    command,
                    input=requirement,
                    env=environ,
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=RESOLUTION_SECONDS,
                )
            except subprocess.TimeoutExpired:
                raise RdmaImagesError(
                    f"{requirement}: the package index did not answer in {RESOLUTION_SECONDS} s\ntry again"
                ) from None
        if process.returncode == 0:
            return process.stdout
        if "was not found in the package registry" in process.stderr:
            raise RdmaImagesError(f"the package index has no {requirement}\nset an index that has it")
        if "No solution found" in process.stderr:
            return None
        complaint = process.stderr.strip().removeprefix("error: ")
        raise RdmaImagesError(f"{requirement}: {complaint}\ncheck package-index in mirrors.yaml, and try again")


def _pins(text: str) -> dict[str, str]:
    """Return version by name from the lines of a requirements file."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def base_pythons(facts: Facts) -> list[str]:
    """Return the newest and oldest Python of the bases."""
    newest_first = versions.newest_first({base.python for base in facts.bases.bases.values()})
    return [newest_first[0], newest_first[-1]]
