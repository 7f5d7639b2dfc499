"""Move short tags when everything has arrived, and never back to an image older than the current one."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rdma_images.core.progress import Progress
from rdma_images.publish.repair import digest_under
from rdma_images.registry import faults
from rdma_images.registry.client import Repository

_UNKNOWN_TIME = datetime.min.replace(tzinfo=UTC)


def advance_tags(names: Iterable[str], digest: str, repository: Repository, progress: Progress) -> tuple[str, ...]:
    """Point each of `names` to the image or index `digest` of the repository; return those that lead there now.

    A tag that leads to what was made of later sources stays, and `progress` gets a line: a run that was repeated, or a
    release of an old commit, does not take a tag back.
    """
    return tuple(name for name in names if _advance_tag(name, digest, repository, progress))


def _advance_tag(name: str, digest: str, repository: Repository, progress: Progress) -> bool:
    current = digest_under(name, repository)
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
    if repository.head(name) != digest:
        raise faults.ConflictError(
            f"{repository.ref}:{name} did not move to {digest}\n"
            "publish again: somebody else moved it at the same time, or the tag is immutable"
        )
    return True


def created_at(digest: str, repository: Repository) -> datetime:
    """Return when the sources of an image were committed, its config's `created`; of an index, the latest.

    Somebody else's image may not say it, or may be there in part: that counts as older than everything.
    """
    try:
        manifest = repository.manifest(digest)
        if members := manifest.members():
            return max(created_at(member.digest, repository) for member in members)
        created = datetime.fromisoformat(str(repository.config(manifest).get("created")))
    except (faults.MalformedError, faults.MissingError, ValueError):
        return _UNKNOWN_TIME
    return created if created.tzinfo else created.replace(tzinfo=UTC)
