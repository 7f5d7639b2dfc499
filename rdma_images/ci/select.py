"""Select the images of a CI run, and find what their builds need and is not locked."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rdma_images.build import build_spec
from rdma_images.ci.ci_jobs import wheel_group
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.facts import Facts
from rdma_images.inputs import availability, lock, project, sources
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.plan import planner

PART = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
MAX_PARTS = 2_000  # parts: no target has more rows
FIRST, NEXT = 600, 60  # seconds assumed for an image: the first with its wheels, and each other one
_DIGESTS_SECONDS = 300  # seconds for the digests of the commit before


def select_images(
    images: Sequence[Image], part: str | None, since: str | None, progress: Progress = silent
) -> tuple[Image, ...]:
    """Return the images that changed since a commit, or their shard.

    An empty text is refused: it comes of a variable that is not set, and would mean everything.

    Args:
        since: A commit; None takes all images.
        part: The shard, as "2/5"; None for all.
    """
    selected = tuple(images)
    if since is not None:
        earlier_digests = digests_of_commit(since, progress)
        selected = changed_images(selected, digests(progress), earlier_digests)
        progress(f"{len(selected)} of {len(images)} images have changed since {since}")
    if part is not None:
        number, parts = parse_shard(part)
        selected = split_images(selected, parts)[number - 1]
    return selected


@dataclass
class Shard:
    """The images of one machine and the seconds they are expected to take."""

    images: list[Image] = field(default_factory=list)
    seconds: int = 0


def parse_shard(text: str) -> tuple[int, int]:
    """Return the shard "2/5" as (2, 5). Raises RefusedError for anything else."""
    match = PART.fullmatch(text)
    number, total = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= total <= MAX_PARTS:
        short = text if len(text) <= 40 else f"{text[:40]}…"
        raise RefusedError(
            f"--shard {short}: not a part of a whole\n"
            f"write i/n with i from 1 to n, and n at most {MAX_PARTS}, as in --shard 1/4"
        )
    return number, total


def split_images(images: Sequence[Image], count: int) -> tuple[tuple[Image, ...], ...]:
    """Return `images` in `count` disjoint parts, always the same.

    Images with the same wheels are a group and stay in one part. Where there are fewer groups than parts, the largest
    groups are halved; each half builds the shared layers again. The heaviest group goes first, to the lightest part.
    """
    groups = _split_groups(_groups(images), count)
    shards = [Shard() for _ in range(count)]
    for group in sorted(groups, key=lambda group: (-len(group), group[0].id)):
        lightest = min(shards, key=lambda part: part.seconds)
        lightest.images += group
        lightest.seconds += FIRST + NEXT * (len(group) - 1)
    return tuple(tuple(part.images) for part in shards)


def _groups(images: Sequence[Image]) -> list[list[Image]]:
    groups: dict[tuple[str, ...], list[Image]] = {}
    for image in sorted(images, key=lambda image: image.id):
        groups.setdefault(wheel_group(image), []).append(image)
    return list(groups.values())


def _split_groups(groups: list[list[Image]], count: int) -> list[list[Image]]:
    """Return at least `count` groups where there are as many images, by halving the largest."""
    groups = list(groups)
    while groups and len(groups) < count:
        largest = max(groups, key=len)
        if len(largest) == 1:
            return groups
        groups.remove(largest)
        middle = len(largest) // 2
        groups += [largest[:middle], largest[middle:]]
    return groups


def digests(progress: Progress = silent) -> dict[str, str]:
    """Return image id -> digest of its inputs, of the whole matrix of this checkout."""
    checkout = project.load()
    images = planner.plan(checkout.matrix, checkout.facts, all_rows=True).images
    return {image.id: build_spec.build_spec(image, checkout, progress=progress).inputs for image in images}


def changed_images(
    images: Sequence[Image], current: Mapping[str, str], earlier_digests: Mapping[str, str]
) -> tuple[Image, ...]:
    """Return those of `images` that are new or whose inputs changed."""
    return tuple(image for image in images if earlier_digests.get(image.id) != current[image.id])


def digests_of_commit(commit: str, progress: Progress = silent) -> dict[str, str]:
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


def require_locks(images: Sequence[Image], facts: Facts, mirrors: Mirrors) -> None:
    """Raise RefusedError, naming all that is missing, unless everything is locked.

    Also raises it for a mirror that names no source.
    """
    availability.require_names((source for image in images for source in sources.pinned(image, facts)), mirrors)
    if names := missing_locks(images, facts, mirrors):
        fix = f"run `{COMMAND} lock --all` where they can be reached, and commit locks/"
        raise RefusedError(f"locks/ lacks {', '.join(names)}\n{fix}")


def _wheel_lock_readers(image: Image) -> dict[str, Callable[[], object]]:
    """Return what reads each lock of wheels that an image needs, by its name."""
    readers: dict[str, Callable[[], object]] = {
        lock.lock_request(image).key: lambda: lock.load(image),
        "tools": lock.tools,
    }
    if image.toolkit:
        readers[lock.toolkit_request(image).key] = lambda: lock.load_toolkit(image)
    return readers
