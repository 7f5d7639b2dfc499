"""Read releases, files and pins of wheels from the package index, with uv."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from packaging.pylock import Package

from rdma_images.core import versions
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import MACHINES, Platform
from rdma_images.facts import Facts
from rdma_images.inputs import index_queries
from rdma_images.inputs.mirrors import Mirrors

# The C library of the oldest base; a wheel that asks for a newer one fits none of the bases.
MANYLINUX = "manylinux_2_35"
PYTHONS = tuple(f"3.{minor}" for minor in range(8, 20))  # oldest first; from the oldest that torch 2.2 has a wheel for


@dataclass(frozen=True)
class IndexClient:
    """A package index, and the logins and certificates for it."""

    address: str
    mirrors: Mirrors

    def unknown(self, package: str, floor: str, recorded: Iterable[str], pythons: Iterable[str]) -> list[str]:
        """Return releases from `floor` on that are not `recorded` and that a Python can run."""
        releases: list[str] = []
        for python in pythons:
            while True:
                without = ",".join(f"!={version}" for version in [*recorded, *releases])
                found = self._compile(
                    f"{package}>={floor},{without}", "--no-deps", "--universal", f"--python-version={python}"
                )
                if found is None:
                    break
                releases.append(str(found[0].version))
        return releases

    def wheels(self, package: str, version: str) -> list[str]:
        """Return the addresses of the wheels of a release.

        Raises RdmaImagesError where the index does not answer or has no such release.
        """
        for python in PYTHONS:  # uv leaves out wheels for pythons older than the requested one
            options = ("--no-deps", "--universal", f"--python-version={python}")
            if found := self._compile(f"{package}=={version}", *options):
                return [wheel.url or str(wheel.path) for wheel in found[0].wheels or ()]
        raise RdmaImagesError(f"the package index has no wheels of {package} {version}\nset an index that has them")

    def pins(self, requirement: str, platform: Platform, python: str) -> dict[str, str]:
        """Return what an installation of `requirement` would bring, by name.

        Metadata decides it, no wheel is sent.
        """
        options = ("--python-platform", f"{MACHINES[platform]}-{MANYLINUX}", "--python-version", python)
        found = self._compile(requirement, *options)
        if found is None:
            raise RdmaImagesError(
                f"the package index has no {requirement} for {platform}, python {python}\nset an index that has it"
            )
        return {package.name: str(package.version) for package in found}

    def _compile(self, requirement: str, *options: str) -> Sequence[Package] | None:
        """Return uv's resolution of one requirement; None if uv finds none."""
        texts = {"requirements.in": requirement}
        options = ("--no-config", "--only-binary", ":all:", *options)
        try:
            return index_queries.compile_requirements(requirement, texts, options, self.address, self.mirrors)
        except index_queries.NoFittingReleaseError as error:
            if "No solution found" in error.words and "was not found in the package registry" not in error.words:
                return None
            raise


def base_pythons(facts: Facts) -> list[str]:
    """Return the newest and oldest Python of the bases."""
    newest_first = versions.newest_first({base.python for base in facts.bases.bases.values()})
    return [newest_first[0], newest_first[-1]]


def wheel_file_name(address: str) -> str:
    """Return the name of a wheel's file, from its address or path."""
    return unquote(urlsplit(address).path).rpartition("/")[2]
