"""Which images a change touches: those whose inputs have another digest than at the commit it starts from."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rdma_images import order, paths, plan
from rdma_images.engine import Progress, silent
from rdma_images.errors import RdmaImagesError, RefusedError
from rdma_images.model import Image
from rdma_images.site import site

_LIMIT = 300  # seconds for the digests of the commit before


def digests(progress: Progress = silent) -> dict[str, str]:
    """Image id -> digest of its inputs, of the whole matrix of this checkout."""
    here = site()
    images = plan.plan(here.matrix, here.facts, everything=True).images
    return {image.id: order.order(image, here, progress=progress).inputs for image in images}


def changed(images: Sequence[Image], now: Mapping[str, str], before: Mapping[str, str]) -> tuple[Image, ...]:
    """Those of `images` that are new or made of something else."""
    return tuple(image for image in images if before.get(image.id) != now[image.id])


def digests_at(commit: str, progress: Progress = silent) -> dict[str, str]:
    """`digests` of another commit, computed by its own code in a worktree of its own.

    A commit that cannot tell (from before this was possible, or broken) gives no digests, so that everything is
    built. Raises RefusedError for a commit that is not here.
    """
    with tempfile.TemporaryDirectory(prefix="rdma-images-") as name:
        tree = Path(name) / "tree"
        _git("worktree", "add", "--detach", "--quiet", str(tree), f"{commit}^{{commit}}")
        try:
            return _digests_in(tree, commit, progress)
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _digests_in(tree: Path, commit: str, progress: Progress) -> dict[str, str]:
    command = [sys.executable, "-m", "rdma_images.ci.changed"]
    try:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=_LIMIT, check=False)
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        why = f"not in {_LIMIT} s"
    except ValueError:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    else:
        return {str(image): str(digest) for image, digest in found.items()}
    progress(f"{commit} cannot tell the digests of its images ({why}): every image counts as changed")
    return {}


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", "-C", str(paths.PROJECT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["git gives no reason"])[-1]
        raise RefusedError(f"{' '.join(arguments[:2])}: {said}: fetch the commit, or name another")


def main() -> int:
    """Print the digests of this checkout as JSON; the exit code of the process."""
    try:
        print(json.dumps(digests(lambda line: print(line, file=sys.stderr))))
    except RdmaImagesError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
