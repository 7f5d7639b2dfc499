"""Short tags: they move when all is there, and never back to an image that is older than the one they lead to."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rdma_images.core.progress import Progress
from rdma_images.publish.repair import digest_under
from rdma_images.registry import faults
from rdma_images.registry.client import Repository

_NEVER = datetime.min.replace(tzinfo=UTC)


def move(names: Iterable[str], digest: str, repository: Repository, say: Progress) -> tuple[str, ...]:
    """Point each of `names` to the image or index `digest` of the repository; those of them that lead there now.

    One that leads to what was made of later sources stays, and `say` gets a line: a run that was repeated, or a
    release of an old commit, does not take a tag back.
    """
    return tuple(name for name in names if _move(name, digest, repository, say))


def _move(name: str, digest: str, repository: Repository, say: Progress) -> bool:
    current = digest_under(name, repository)
    if current == digest:
        return True
    if current is not None:
        ours, theirs = made(digest, repository), made(current, repository)
        if ours < theirs:
            say(
                f"{repository.ref}:{name} stays with {current}, whose sources are of {theirs:%Y-%m-%d %H:%M} UTC: "
                f"those of {digest} are of {ours:%Y-%m-%d %H:%M}"
            )
            return False
    repository.put_manifest(name, repository.manifest(digest))
    if repository.head(name) != digest:
        raise faults.ConflictError(
            f"{repository.ref}:{name} did not move to {digest}\n"
            "publish again: somebody else moved it at the same time, or the tag is immutable"
        )
    return True


def made(digest: str, repository: Repository) -> datetime:
    """When the sources of an image were committed, which is what its config calls created; of an index, the latest.

    Somebody else's image may not say it, or may be there in part: that is older than everything.
    """
    try:
        manifest = repository.manifest(digest)
        if members := manifest.members():
            return max(made(one.digest, repository) for one in members)
        found = datetime.fromisoformat(str(repository.config(manifest).get("created")))
    except (faults.MalformedError, faults.MissingError, ValueError):
        return _NEVER
    return found if found.tzinfo else found.replace(tzinfo=UTC)
