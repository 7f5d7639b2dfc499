"""The tags of a published image: one with every version, measured inside the image; short ones that move.

Grammar: `<version>[-<component><version>]…-<base>[-<platform>][-<digest>][-rehearsal]` in full (tag.py), `latest` for a
target's default row, and `<major>.<minor>` of the first component for the row that is the default one but for that.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rdma_images import components
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.pipeline import Image
from rdma_images.core.versions import key
from rdma_images.inspection.report import Report
from rdma_images.plan import axes
from rdma_images.plan.matrix import Matrix
from rdma_images.publish.from_report import platform, versions

LATEST = "latest"
REHEARSAL = "-rehearsal"
ATTACHMENTS = "sha256-*"  # where registries without referrers, and cosign, keep what is attached to an image
VERSION = "org.opencontainers.image.version"  # the label with an image's tag as it was planned
_ARCHITECTURE = re.compile(r"-(amd64|arm64)$")
_OWN = re.compile(r"-[0-9a-f]{12}$")
_LINE = re.compile(r"\d+\.\d+")
_FULL = re.compile(r"\d+(\.\d+)+-.+")


@dataclass(frozen=True)
class Tags:
    """The tags of one image. `joint` is that of the index over its platforms; None where it has one platform."""

    full: str
    short: tuple[str, ...] = ()
    joint: str | None = None

    def moving(self) -> tuple[str, ...]:
        """Those of them that must stay movable where tags are immutable."""
        return self.short


def own(full: str, digest: str) -> str:
    """The tag of one build alone, where the full tag stays with an earlier one: it ends with the digest's start."""
    plain = full.removesuffix(REHEARSAL)
    return f"{plain}-{digest.removeprefix('sha256:')[:12]}{full.removeprefix(plain)}"


def fits(tag: str, version: str, built_for: str) -> bool | None:
    """Whether `tag` is true of an image for the platform `built_for` whose label VERSION is `version`.

    None for a tag that is not of this grammar, whose meaning is unknown.
    """
    bare = tag.removesuffix(REHEARSAL)
    if bare == LATEST:
        return True if version else None
    if _LINE.fullmatch(bare):
        return bare == _line(version.partition("-")[0])
    if not _FULL.fullmatch(bare):
        return None
    bare = _OWN.sub("", bare)
    named = _ARCHITECTURE.search(bare)
    same = _ARCHITECTURE.sub("", bare) == _ARCHITECTURE.sub("", version)
    return same and (named is None or built_for == f"linux/{named[1]}")


def tags(image: Image, images: Sequence[Image], matrix: Matrix, rehearsal: bool) -> Tags:
    """The tags of `image`, which is one of `images`, the whole matrix.

    Where an image exists for several platforms, its own tag names the platform, and the plain one is the index's.
    """
    ending = REHEARSAL if rehearsal else ""
    plain = _ARCHITECTURE.sub("", image.tag)
    alone = all(other.platform == image.platform for other in images if _same_but_platform(image, other))
    short = tuple(f"{name}{ending}" for name in _short(image, images, matrix))
    if alone:
        return Tags(image.tag + ending, short)
    return Tags(f"{plain}-{image.platform.removeprefix('linux/')}{ending}", short, joint=plain + ending)


def _same_but_platform(one: Image, other: Image) -> bool:
    return one.target == other.target and _without(one, "platform") == _without(other, "platform")


def _without(image: Image, *names: str) -> dict[str, str]:
    return {name: value for name, value in image.axes.items() if name not in names}


def _short(image: Image, images: Sequence[Image], matrix: Matrix) -> list[str]:
    """The short tags that are this image's; none for a row that is far from the default one."""
    if image.target not in matrix.targets:
        return []
    default = axes.complete(matrix.targets[image.target].default)
    lead = _lead(image)
    if any(image.axes.get(name) != value for name, value in default.items() if name not in ("platform", lead)):
        return []
    line = _line(image.version(lead))
    rivals = [
        other
        for other in images
        if other.target == image.target
        and _without(other, "platform", lead) == _without(image, "platform", lead)
        and _line(other.version(lead)) == line
    ]
    newest = max((other.version(lead) for other in (*rivals, image)), key=key)
    found = [line] if image.version(lead) == newest else []
    return found + ([LATEST] if image.axes.get(lead) == default.get(lead) else [])


def _lead(image: Image) -> str:
    """The component that a target is about: the first of the grammar that it has."""
    return next(one.name for one in components.IN_TAGS if one.name in image.components)


def _line(version: str) -> str:
    return ".".join(version.split(".")[:2])


def confirm(image: Image, report: Report) -> dict[str, str]:
    """The versions in the tag that were measured inside the image, by component.

    Raises RefusedError where the platform or a measured version is another than the tag's, or one that has to be
    measured was not. (The EFA installer and nccl-tests are known by the checksums of their downloads, and of nothing in
    the image. The plugin is measured where the installer brought it.)
    """
    if (is_for := platform(report)) != image.platform:
        raise RefusedError(
            f"{image.id} is for {image.platform}, but {is_for or 'no platform'} was measured\n"
            f"run `{COMMAND} build` for it on that platform, then `{COMMAND} validate`"
        )
    found = versions(report)
    for one in (one for one in components.IN_TAGS if one.name in image.components):
        said, is_there = image.version(one.name), found.get(one.name)
        if is_there is None and one.is_measured:
            raise RefusedError(
                f"{image.id}: the tag names {one.name} {said}, which the report has not measured\n"
                f"run `{COMMAND} validate` for it again"
            )
        if is_there is not None and not one.agrees(said, is_there) and not report.rehearsal:
            raise RefusedError(
                f"{image.id}: the tag would say {one.name} {said}, but the image has {is_there}\n"
                f"report this as a defect, with report.json: the build and its plan differ"
            )
    return {name: version for name, version in found.items() if name in image.components}
