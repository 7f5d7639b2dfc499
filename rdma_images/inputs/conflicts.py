"""Read uv's report of conflicting packages: which one needs which torch."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from rdma_images.core import atomic, yaml_file
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.core.paths import state_folder
from rdma_images.facts import Facts
from rdma_images.inputs.wheels import LockRequest

# "vllm>=0.27.0,<=0.32.0 depends on torch==2.13.0 and vllm>=0.33.0 depends on torch==2.14.0"
NEED = re.compile(
    r"(?P<name>[\w.-]+?)(?:==(?P<exact>[\w.]+)|>=(?P<least>[\w.]+)(?:,<=(?P<most>[\w.]+))?) depends on "
    r"torch==(?P<torch>\d+(?:\.\d+)*)"
)
# "hint: Wheels are required for `transformer-engine-torch` because building from source is disabled"
SOURCE_ALONE = re.compile(r"Wheels are required for `(?P<name>[\w.-]+)`")
MAX_AGE = timedelta(days=7)  # the index has new releases every day: an older answer refuses nothing


class TorchNeed(yaml_file.Strict):
    """Releases of a package that need one torch."""

    package: str
    versions: str  # "0.33.0 and later"
    torch: str

    def sentence(self, planned: str) -> str:
        """Return what is wrong with the planned torch."""
        verb = "need" if " " in self.versions else "needs"
        return f"{self.package} {self.versions} {verb} torch {self.torch}, and torch {planned} is planned"


class Conflict(yaml_file.Strict):
    """A question to which the package index had no answer, and the reason."""

    words: str  # uv's own
    needs: tuple[TorchNeed, ...]  # as uv lists them: the newest releases last
    day: date  # on which the index was asked


class PackageConflictError(RdmaImagesError):
    """The package index has no wheels that go together; carries the conflict."""

    def __init__(self, request: LockRequest, conflict: Conflict) -> None:
        self.conflict = conflict
        super().__init__(f"locking {request.key}: {_raw_explanation(conflict)}")


def parse_complaint(complaint: str, day: date | None = None) -> Conflict:
    """Return what uv printed as a conflict of `day`, by default of today."""
    words = " ".join(complaint.split()).removeprefix("error: ")
    return Conflict(words=words, needs=tuple(_needs(words)), day=day or datetime.now(UTC).date())


def explain(conflict: Conflict, image: Image, facts: Facts) -> str:
    """Return why an image's packages conflict, and the nearest torch that works.

    Where uv names no torch that a package needs, its own words in one line.
    """
    from rdma_images.plan.nearest import nearest_value  # here, because most locks need none of it

    torch = image.components.get("pytorch")
    needs_by_torch = {need.torch: need for need in conflict.needs if torch and need.torch != torch.version}
    if not torch or not needs_by_torch:
        return _raw_explanation(conflict)
    if nearest := nearest_value(image, "pytorch", needs_by_torch, facts):
        return f"{needs_by_torch[nearest].sentence(torch.version)}\nnearest that works: --set pytorch={nearest}"
    *_, newest = needs_by_torch.values()
    return (
        f"{newest.sentence(torch.version)}\nno torch that its releases need works in this image: "
        f"name another version of {newest.package}, or leave it out"
    )


def remember(request: LockRequest, conflict: Conflict | None) -> None:
    """Write why the index had no answer to a question; None for a question that it answered."""
    path = _path(request)
    if conflict is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, conflict.model_dump_json())


def recall(request: LockRequest) -> Conflict | None:
    """Return why the index had no answer; None where it was not asked this week, or had one."""
    try:
        conflict = Conflict.model_validate_json(_path(request).read_bytes())
    except (OSError, ValueError):
        return None
    return conflict if datetime.now(UTC).date() - conflict.day <= MAX_AGE else None


def _needs(words: str) -> Iterator[TorchNeed]:
    for match in NEED.finditer(words):
        versions = match["exact"] or (
            f"{match['least']} to {match['most']}" if match["most"] else f"{match['least']} and later"
        )
        yield TorchNeed(package=match["name"], versions=versions, torch=match["torch"])


def _raw_explanation(conflict: Conflict) -> str:
    """Return uv's own words in one line, with the way out."""
    source = SOURCE_ALONE.search(conflict.words)
    fix = f"name {source['name']} under source-packages" if source else "change the versions, or the index that uv uses"
    return f"uv finds no wheels: {conflict.words}\n{fix}"


def _path(request: LockRequest) -> Path:
    return state_folder() / "conflicts" / f"{request.key}.json"
