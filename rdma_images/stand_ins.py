"""Stand-ins for what a rehearsal cannot reach: folders under dockerfiles/stand-ins/, built like any other stage."""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from rdma_images import paths, versions
from rdma_images.bake import HelperTarget, name_of
from rdma_images.facts import Facts
from rdma_images.model import Image, Source

SHARED = "shared"  # what several stand-ins are made of
LAID_OVER = "stand-in"  # the context of what is laid over a base
FOLDER = paths.DOCKERFILES / "stand-ins"
# The oldest net ABI that any release since 1.7 exports, and every NCCL since 2.18 takes.
# Source: aws-ofi-nccl src/nccl_ofi_interface_nvidia.cpp @02a874dc.
OLDEST_NET = 6


def stand_in(source: Source, image: Image, facts: Facts, base: str) -> HelperTarget:
    """The target that makes the stand-in for `source`; `base` is the bake target of the image's base."""
    return HelperTarget(
        name=name_of(f"stand-in-{source.id}-{image.axes['base']}-{image.platform.rpartition('/')[2]}"),
        folder=FOLDER / source.component,
        arguments=_arguments(image, facts),
        contexts={"base": base, SHARED: str((FOLDER / SHARED).relative_to(paths.PROJECT))},
    )


def base(source: Source, image: Image, facts: Facts, tar: Path) -> HelperTarget:
    """The target that makes the stand-in for a base of which more is stood in for than a distribution.

    It begins at the root file system's `tar` and not at the target of a bootstrapped base: of a chain of that many
    targets buildx 0.13 has closed the first one's session when the last begins, and BuildKit cannot read its files.
    """
    laid_over = FOLDER / folder(source)
    return HelperTarget(
        name=name_of(f"stand-in-{source.id}-{image.platform.rpartition('/')[2]}"),
        folder=tar.parent,
        inline=(laid_over / "Dockerfile").read_text(encoding="utf-8"),
        arguments={**_arguments(image, facts), "TAR": tar.name},
        contexts={LAID_OVER: str(laid_over.relative_to(paths.PROJECT))},
    )


def folder(source: Source) -> str:
    """The name of the folder that a stand-in is made of: its component's, or that of what is laid over a base."""
    return source.extra.get("laid-over", source.component)


def digest(folders: Iterable[str]) -> str:
    """What is in these folders: a change of a stand-in changes every image that has it."""
    sum_ = sha256()
    for name in sorted({*folders, SHARED}):
        for file in _files(FOLDER / name):
            sum_.update(f"{file.relative_to(FOLDER)}\0".encode() + file.read_bytes())
    return sum_.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _arguments(image: Image, facts: Facts) -> dict[str, str]:
    """Build arguments: what the facts know of the versions stood in for. A Dockerfile takes those that it names."""
    arguments = dict(facts.bases.bases[image.axes["base"]].environment)
    for name, part in image.components.items():
        arguments[_argument(name)] = part.version
        arguments |= {_argument(f"{name}-{detail}"): word for detail, word in part.details.items()}
    if "aws-ofi-nccl" in image.components:
        newest = _newest_net(image.version("aws-ofi-nccl"), facts)
        arguments["NET_ABI"] = " ".join(str(version) for version in range(OLDEST_NET, newest + 1))
        tuner = facts.nccl.releases[image.version("nccl")].tuner
        arguments["TUNER_ABI"] = " ".join(str(version) for version in tuner)
    return dict(sorted(arguments.items()))


def _argument(name: str) -> str:
    return name.replace("-", "_").upper()


def _newest_net(plugin: str, facts: Facts) -> int:
    """The newest net ABI that this plugin is known to export, or that the newest older one is known to."""
    known = [
        release.net
        for version, release in facts.plugin.releases.items()
        if release.net and not (versions.at_least(version, plugin) and version != plugin)
    ]
    return max(known, default=OLDEST_NET)
