"""Stand-ins for unreachable sources in a rehearsal, from dockerfiles/stand-ins/."""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from rdma_images import components
from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.core.source import Source
from rdma_images.facts import Facts
from rdma_images.render.bake import HelperTarget, bake_name

SHARED = "shared"  # the folder with what several stand-ins use
LAID_OVER = "stand-in"  # the build context of what is laid over a base


def stand_in(source: Source, image: Image, facts: Facts, base: str) -> HelperTarget:
    """Return the target that makes a source's stand-in on the bake target `base`."""
    return HelperTarget(
        name=bake_name(f"stand-in-{source.id}-{image.axes['base']}-{image.platform.rpartition('/')[2]}"),
        folder=_folder(source.component),
        platform=image.platform,
        arguments=build_arguments(image, facts),
        contexts={"base": base, SHARED: paths.display_path(_folder(SHARED))},
    )


def base_target(source: Source, image: Image, facts: Facts, tar: Path) -> HelperTarget:
    """Return the bake target of the stand-in for a vendor's base image.

    It starts from the root file system's `tar` and not from the target of a bootstrapped base: in a chain of that many
    targets buildx 0.13 closes the first one's session before the last begins, and BuildKit cannot read its files.
    """
    laid_over = _folder(folder_name(source))
    return HelperTarget(
        name=bake_name(f"stand-in-{source.id}-{image.platform.rpartition('/')[2]}"),
        folder=tar.parent,
        platform=image.platform,
        inline=(laid_over / "Dockerfile").read_text(encoding="utf-8"),
        arguments={**build_arguments(image, facts), "TAR": tar.name},
        contexts={LAID_OVER: paths.display_path(laid_over)},
    )


def folder_name(source: Source) -> str:
    """Return the name of a stand-in's folder: its component's, or the one laid over a base."""
    return source.laid_over or source.component


def combined_digest(folders: Iterable[str]) -> str:
    """Return one digest of all files in the folders that a stand-in is made from."""
    hasher = sha256()
    for name in sorted({*folders, SHARED}):
        root = _folder(name)
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            hasher.update(f"{file.relative_to(root.parent)}\0".encode() + file.read_bytes())
    return hasher.hexdigest()


def _folder(name: str) -> Path:
    return paths.find_data(f"dockerfiles/stand-ins/{name}")


def build_arguments(image: Image, facts: Facts) -> dict[str, str]:
    """Return versions and facts of the components as build arguments."""
    arguments = dict(facts.bases.bases[image.axes["base"]].environment)
    for name, part in image.components.items():
        arguments[name] = part.version
        arguments |= {f"{name}-{detail}": word for detail, word in part.details.text_fields().items()}
    for component in components.ALL:
        if component.name in image.components:
            arguments |= component.stand_in_arguments(image, facts)
    return dict(sorted((name.replace("-", "_").upper(), value) for name, value in arguments.items()))
