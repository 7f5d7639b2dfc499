"""Select the images of a CI run, and find the inputs of their builds that are not locked."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rdma_images.build import build_spec
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.facts import Facts
from rdma_images.inputs import availability, lock, project, sources
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.plan import planner

_DIGESTS_SECONDS = 300  # seconds for the digests of the commit before


def images_changed_since(commit: str, images: Sequence[Image], progress: Progress = silent) -> tuple[Image, ...]:
    """Return the images whose inputs have changed since a commit, which this clone must have."""
    earlier_digests, current = digests_of_commit(commit, progress), image_digests(progress)
    changed = tuple(image for image in images if earlier_digests.get(image.id) != current[image.id])
    progress(f"{len(changed)} of {len(images)} images have changed since {commit}")
    return changed


def image_digests(progress: Progress = silent) -> dict[str, str]:
    """Return image id -> digest of its inputs, of the whole matrix of this checkout."""
    checkout = project.load()
    images = planner.plan(checkout.matrix, checkout.facts, all_rows=True).images
    return {image.id: build_spec.build_spec(image, checkout, progress=progress).inputs for image in images}


def digests_of_commit(commit: str, progress: Progress = silent) -> dict[str, str]:
    """Return `image_digests` of another commit, computed by that commit's code in a git worktree.

    A commit whose code cannot do that (too old, or broken) gives no digests: every image is built then. Raises
    RefusedError for a commit that this clone does not have.
    """
    if not commit or "\0" in commit:
        raise RefusedError(
            f"--changed-since {commit!r}: not a commit\nname a commit, or leave the option out for every image"
        )
    with tempfile.TemporaryDirectory(prefix="rdma-images-") as name:
        tree = Path(name) / "tree"
        # --end-of-options: git would take a name that begins with "-" for an option.
        revision = _git("rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
        _git("worktree", "add", "--detach", "--quiet", str(tree), revision)
        try:
            subfolder = _git("rev-parse", "--show-prefix")  # of a folder of one's own inside a larger repository
            return _digests_in(tree / subfolder, commit, progress)
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _digests_in(tree: Path, commit: str, progress: Progress) -> dict[str, str]:
    """Return the digests of the images in a checkout of `commit`, by id; empty where they are not known."""
    command = [*paths.PYTHON, "-m", "rdma_images.ci.select"]
    try:
        process = subprocess.run(
            command, cwd=tree, capture_output=True, text=True, timeout=_DIGESTS_SECONDS, check=False
        )
        reported = json.loads(process.stdout)
    except subprocess.TimeoutExpired:
        reason = f"not in {_DIGESTS_SECONDS} s"
    except ValueError:
        reason = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
    else:
        return {str(image): str(digest) for image, digest in reported.items()}
    progress(f"{commit} has no digests of its images ({reason}): every image counts as changed")
    return {}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(paths.PROJECT), *arguments]
    try:
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise RefusedError(f"git: {error.strerror}\ninstall it, or leave --changed-since out") from None
    if process.returncode:
        complaint = (process.stderr.strip().splitlines() or ["git gives no reason"])[-1]
        raise RefusedError(f"git {arguments[0]}: {complaint}\nfetch the commit, or name another")
    return process.stdout.strip()


def missing_locks(images: Sequence[Image], facts: Facts, mirrors: Mirrors) -> tuple[str, ...]:
    """Return the sources and wheels that are not locked for a build on this machine.

    Asks no network. A lock that is there and is about something else counts as missing.
    """
    names: dict[str, None] = {}  # a set in the order of the images
    for image in images:
        for source in sources.pinned(image, facts):
            if not availability.is_locked(source, mirrors):
                names[f"{source.id} ({source.upstream})"] = None
        for name, load in _wheel_lock_readers(image).items():
            try:
                load()
            except RefusedError:
                names[f"wheels {name}"] = None
    return tuple(names)


def require_locks(images: Sequence[Image], facts: Facts, mirrors: Mirrors, scope: str) -> None:
    """Raise RefusedError, naming all that is missing, unless everything is locked.

    Also raises it for a mirror that names no source. `scope` are the options of `lock` that choose the images.
    """
    availability.require_known_mirrors((source for image in images for source in sources.pinned(image, facts)), mirrors)
    if names := missing_locks(images, facts, mirrors):
        fix = f"run `{COMMAND} lock {scope}` where they can be reached, and commit locks/"
        raise RefusedError(f"locks/ lacks {', '.join(names)}\n{fix}")


def _wheel_lock_readers(image: Image) -> dict[str, Callable[[], object]]:
    """Return a reader for each wheel lock that an image needs, by the lock's name."""
    readers: dict[str, Callable[[], object]] = {
        lock.lock_request(image).key: lambda: lock.read_image_lock(image),
        "tools": lock.tools,
    }
    if image.toolkit:
        compilers = lock.toolkit_request(image)
        readers[compilers.key] = lambda: lock.read_lock(compilers)
    return readers


def main() -> int:
    """Print the digests of this checkout as JSON; return the exit code of the process."""
    try:
        print(json.dumps(image_digests(lambda line: print(line, file=sys.stderr))))
    except RdmaImagesError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
