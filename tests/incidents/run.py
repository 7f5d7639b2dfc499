"""Run the static validators over images made of data, and compare with what must be reported."""

import functools
import io
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rdma_images.core.pipeline import Check
from rdma_images.facts import table
from rdma_images.facts.faults import Faults
from rdma_images.facts.packages import Packages
from rdma_images.inspection.inspection import Case
from rdma_images.inspection.measurements import Entry
from rdma_images.validate import entry, fabric, readout
from rdma_images.validate.answers import measured
from tests import validators_called
from tests.incidents.case import Incident, Told
from tests.incidents.image import Image

NOT_ASKED = "torch.imports"  # nothing of an image is started here
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # to delete folders on a disk takes longer than to read them


class Outcome(NamedTuple):
    """What became of a case: whether its cause was `told`, the errors `beside` it, and what failed after the `fix`."""

    told: bool
    beside: tuple[Check, ...]
    fix: tuple[Check, ...] = ()

    def right(self, incident: Incident) -> bool:
        """Whether all is as it must be."""
        return self.told == bool(incident.told) and not self.beside and not self.fix


def case_of(name: str, image: Image) -> Case:
    """All that is known of the image without an engine: read out, nothing of it started."""
    subject = image.subject(name)
    with tempfile.TemporaryDirectory(prefix="rdma-images-incident-", dir=MEMORY) as folder:
        said = readout.answers(io.BytesIO(image.tar()), Path(folder), subject)
    found = measured(said, readout.PROBES)
    missing = {"torch": "torch was not imported", "tools": "nothing of the image was started"}
    started = Entry(given=image.started) if image.started else None
    known = found.settings and entry.with_files(found.settings, image.started, image.text)
    found = found.model_copy(update={"entry": started, "settings": known, "missing": {**found.missing, **missing}})
    return Case(subject=subject, expected=fabric.expected(subject, found, None), measured=found)


def checks(images: Mapping[str, Image], of: Mapping[str, set[str]] | None = None) -> dict[str, list[Check]]:
    """What the static validators say of each image; `of` names the only ones to ask of some."""
    return {
        name: [
            check
            for check in validators_called.checks(case_of(name, image), of.get(name) if of else None)
            if check.id != NOT_ASKED
        ]
        for name, image in images.items()
    }


def outcomes(incidents: Mapping[str, Incident]) -> dict[str, Outcome]:
    """What becomes of each case: once as it is, and once more, for the checks that told it, with its fix."""
    found = checks({name: incident.image for name, incident in incidents.items()})
    seen = {name: outcome(incident, found[name]) for name, incident in incidents.items()}
    fixed = {name: image for name, incident in incidents.items() if (image := incident.fixed) and seen[name].told}
    told = {name: {check.id for check in _told(incidents[name], found[name])} for name in fixed}
    after = checks(fixed, told) if fixed else {}
    left = {
        name: tuple(check for check in checks if check.outcome == "failed" and not _ends_one(check, found[name]))
        for name, checks in after.items()
    }
    return {name: outcome._replace(fix=left.get(name, ())) for name, outcome in seen.items()}


def outcome(incident: Incident, found: Iterable[Check]) -> Outcome:
    """Whether what had to be reported was, and what was reported that should not have been."""
    right = _told(incident, found)
    errors = [check for check in found if check.outcome == "failed" and check.severity == "error"]
    return Outcome(bool(right), tuple(c for c in errors if c not in right and c.id not in incident.besides))


def _ends_one(left: Check, before: Iterable[Check]) -> bool:
    """Whether a check that still fails names a known fault less than before.

    A version can have several, and the one that takes its place others: a fix ends one of those that were told.
    """
    return any(_known_faults(check) - _known_faults(left) for check in before if check.id == left.id)


def _known_faults(check: Check) -> set[str]:
    """The rows of facts/faults.yaml and packages.yaml that a check names, by their reasons."""
    return {why for why in _reasons() if why in check.found}


@functools.cache
def _reasons() -> tuple[str, ...]:
    known = (*table.read("faults.yaml", Faults).faults, *table.read("packages.yaml", Packages).faults)
    return tuple(row.why for row in known)


def _told(incident: Incident, found: Iterable[Check]) -> list[Check]:
    told = incident.told
    return [check for check in found if told and check.outcome == "failed" and _is(check, told)]


def _is(check: Check, told: Told) -> bool:
    first = check.found.partition("\n")[0]
    return check.id in (told.check or check.id) and all(word in first for word in told.words)
