"""Find the images that a change touches: those whose inputs have another digest than at the base commit."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rdma_images.build import build_spec
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.pipeline import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.plan import planner
from rdma_images.selection import project

_LIMIT = 300  # seconds for the digests of the commit before


def digests(progress: Progress = silent) -> dict[str, str]:
    """Return image id -> digest of its inputs, of the whole matrix of this checkout."""
    checkout = project.load()
    images = planner.plan(checkout.matrix, checkout.facts, everything=True).images
    return {image.id: build_spec.build_spec(image, checkout, progress=progress).inputs for image in images}


def changed_images(
    images: Sequence[Image], current: Mapping[str, str], earlier: Mapping[str, str]
) -> tuple[Image, ...]:
    """Return those of `images` that are new or whose inputs changed."""
    return tuple(image for image in images if earlier.get(image.id) != current[image.id])


def digests_at(commit: str, progress: Progress = silent) -> dict[str, str]:
    """Return `digests` of another commit, computed by that commit's code in a git worktree.

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
    command = [*paths.PYTHON, "-m", "rdma_images.ci.changed"]
    try:
        process = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=_LIMIT, check=False)
        reported = json.loads(process.stdout)
    except subprocess.TimeoutExpired:
        reason = f"not in {_LIMIT} s"
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


def main() -> int:
    """Print the digests of this checkout as JSON; return the exit code of the process."""
    try:
        print(json.dumps(digests(lambda line: print(line, file=sys.stderr))))
    except RdmaImagesError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
