"""The tags of an image: one with all measured versions, and short ones that move.

Short tags move when everything has arrived, and never back to an image older than the current one.

Grammar: `<version>[-<component><version>]…-<base>[-<platform>][-<digest>][-rehearsal]` in full (`planner.tag`),
`latest` for a target's default row, and `<major>.<minor>` of the first component for the row that is the default one
but for that.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rdma_images import components
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress
from rdma_images.core.versions import sort_key
from rdma_images.inspection.report import Report
from rdma_images.plan.matrix import Matrix
from rdma_images.publish.report_versions import platform, versions
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Repository

LATEST = "latest"
REHEARSAL = "-rehearsal"
ATTACHMENTS = "sha256-*"  # tags of attachments, in registries without referrers, and of cosign's signatures
_ARCHITECTURE = re.compile(r"-(amd64|arm64)$")
_UNKNOWN_TIME = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Tags:
    """The tags of one image; `multi_platform` is that of the index over its platforms.

    The `short` tags move to later builds, and must stay movable where tags are immutable.
    """

    full: str
    short: tuple[str, ...] = ()
    multi_platform: str | None = None


def unique_tag(full_tag: str, digest: str) -> str:
    """Return the tag of this build alone, used where the full tag stays with an earlier build."""
    plain = full_tag.removesuffix(REHEARSAL)
    return f"{plain}-{digest.removeprefix('sha256:')[:12]}{full_tag.removeprefix(plain)}"


def image_tags(image: Image, images: Sequence[Image], matrix: Matrix, rehearsal: bool) -> Tags:
    """Return the tags of `image`, which is one of `images`, the whole matrix.

    Where an image exists for several platforms, its own tag names the platform, and the plain one is the index's.
    """
    ending = REHEARSAL if rehearsal else ""
    plain = _ARCHITECTURE.sub("", image.tag)
    is_only_platform = all(other.platform == image.platform for other in images if _differ_in_platform(image, other))
    short_tags = tuple(f"{name}{ending}" for name in _short_tags(image, images, matrix))
    if is_only_platform:
        return Tags(image.tag + ending, short_tags)
    return Tags(f"{plain}-{image.platform.removeprefix('linux/')}{ending}", short_tags, multi_platform=plain + ending)


def _differ_in_platform(image: Image, other_image: Image) -> bool:
    return image.target == other_image.target and _axes_without(image, "platform") == _axes_without(
        other_image, "platform"
    )


def _axes_without(image: Image, *names: str) -> dict[str, str]:
    return {name: value for name, value in image.axes.items() if name not in names}


def _short_tags(image: Image, images: Sequence[Image], matrix: Matrix) -> list[str]:
    """Return the image's short tags; none for --onto, and for a row that differs in more than the first component."""
    if image.target not in matrix.targets or bool(image.onto) != bool(matrix.targets[image.target].onto):
        return []
    default = matrix.targets[image.target].complete()
    # The main component of the target: the first in the order of tags.
    lead = next(component.name for component in components.IN_TAGS if component.name in image.components)
    if any(image.axes.get(name) != value for name, value in default.items() if name not in ("platform", lead)):
        return []
    release_line = _release_line(image.version(lead))
    rivals = [
        other
        for other in images
        if other.target == image.target
        and _axes_without(other, "platform", lead) == _axes_without(image, "platform", lead)
        and _release_line(other.version(lead)) == release_line
    ]
    newest = max((other.version(lead) for other in (*rivals, image)), key=sort_key)
    short = [release_line] if image.version(lead) == newest else []
    return short + ([LATEST] if image.axes.get(lead) == default.get(lead) else [])


def _release_line(version: str) -> str:
    return ".".join(version.split(".")[:2])


def measured_versions(image: Image, report: Report) -> dict[str, str]:
    """Return the versions in the tag that were measured inside the image, by component.

    The EFA installer and nccl-tests are known by the checksums of their downloads, and of nothing in the image. The
    plugin is measured where the installer brought it.

    Raises:
        RefusedError: The platform or a measured version is another than the tag's, or one that has to be measured
            was not.
    """
    if (actual := platform(report)) != image.platform:
        raise RefusedError(
            f"{image.id} is for {image.platform}, but {actual or 'no platform'} was measured\n"
            f"run `{COMMAND} build` for it on that platform, then `{COMMAND} validate`"
        )
    measured = versions(report)
    for component in (component for component in components.IN_TAGS if component.name in image.components):
        planned, version = image.version(component.name), measured.get(component.name)
        if version is None and component.must_be_measured:
            raise RefusedError(
                f"{image.id}: the tag names {component.name} {planned}, which the report has not measured\n"
                f"run `{COMMAND} validate` for it again"
            )
        if version is not None and not component.matches_measured(planned, version) and not report.stand_ins:
            raise RefusedError(
                f"{image.id}: the tag would say {component.name} {planned}, but the image has {version}\n"
                f"report this as a defect, with report.json: the build and its plan differ"
            )
    return {name: version for name, version in measured.items() if name in image.components}


def advance_tags(names: Iterable[str], digest: str, repository: Repository, progress: Progress) -> tuple[str, ...]:
    """Point each of `names` to `digest`; return those that lead there now.

    A tag that leads to what was made of later sources stays, and `progress` gets a line: a run that was repeated, or a
    release of an old commit, does not take a tag back.
    """
    return tuple(name for name in names if _advance_tag(name, digest, repository, progress))


def _advance_tag(name: str, digest: str, repository: Repository, progress: Progress) -> bool:
    current = repository.find_digest(name)
    if current == digest:
        return True
    if current is not None:
        new_time, current_time = created_at(digest, repository), created_at(current, repository)
        if new_time < current_time:
            progress(
                f"{repository.ref}:{name} stays with {current}, whose sources are of "
                f"{current_time:%Y-%m-%d %H:%M} UTC: those of {digest} are of {new_time:%Y-%m-%d %H:%M}"
            )
            return False
    repository.put_manifest(name, repository.manifest(digest))
    if repository.find_digest(name) != digest:
        raise registry_errors.ConflictError(
            f"{repository.ref}:{name} did not move to {digest}\n"
            "publish again: somebody else moved it at the same time, or the tag is immutable"
        )
    return True


def created_at(digest: str, repository: Repository) -> datetime:
    """Return when an image's sources were committed; for an index, the latest time.

    Somebody else's image may not say it, or may be there in part: that counts as older than everything.
    """
    try:
        manifest = repository.manifest(digest)
        if members := manifest.members():
            return max(created_at(member.digest, repository) for member in members)
        created = datetime.fromisoformat(str(repository.config(manifest).get("created")))
    except (registry_errors.MalformedError, registry_errors.MissingError, ValueError):
        return _UNKNOWN_TIME
    return created if created.tzinfo else created.replace(tzinfo=UTC)
