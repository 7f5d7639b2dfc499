"""Run the static validators over images made of data, and compare with what must be reported."""

import functools
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rdma_images.core.check import Check
from rdma_images.facts import facts_file
from rdma_images.facts.faults import Faults, PackageFaults
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import EntryPointChanges
from rdma_images.validate import expected_fabric, image_layers, probe_files, suite
from rdma_images.validate.run_probes import parse_answers
from tests.incidents.case import ExpectedReport, Incident
from tests.incidents.image import IncidentImage

RUN_CHECK = "torch.imports"  # nothing of an image is started here
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # to delete folders on a disk takes longer than to read them


class Outcome(NamedTuple):
    """What became of a case.

    Whether its cause was `reported`, the `alarms` beside it, all errors and warnings, what is `unfixed` by its fix.
    """

    reported: bool
    alarms: tuple[Check, ...]
    findings: tuple[Check, ...]
    unfixed: tuple[Check, ...] = ()

    def right(self, incident: Incident) -> bool:
        """Return whether all is as it must be."""
        return self.reported == bool(incident.reported) and not self.alarms and not self.unfixed


def read_image(name: str, image: IncidentImage) -> Inspection:
    """Return all that is known of the image from its files, without starting anything."""
    subject = image.subject(name)
    with tempfile.TemporaryDirectory(prefix="rdma-images-incident-", dir=MEMORY) as folder:
        layer = Path(folder) / "layer"
        layer.write_bytes(image.tar())
        layers = (image_layers.read_layer(subject.digest, layer),)
        with layer.open("rb") as export:
            answers = probe_files.encoded_answers(export, Path(folder), subject)
    inspection = parse_answers(answers, probe_files.EXPORT_PROBES)
    missing = {"torch": "torch was not imported", "tools": "nothing of the image was started"}
    started = EntryPointChanges(given=image.started) if image.started else None
    inspection = inspection.model_copy(
        update={"entry": started, "layers": layers, "missing": {**inspection.missing, **missing}}
    )
    expected = expected_fabric.image_expectations(subject, inspection, None)
    expected = expected.model_copy(update={"instance": image.instance})
    return Inspection(subject=subject, expected=expected, measured=inspection)


def run_checks(
    images: Mapping[str, IncidentImage], only: Mapping[str, set[str]] | None = None
) -> dict[str, list[Check]]:
    """Return what the static validators say of each image; `only` names the ones to run for some."""
    return {
        name: [
            check
            for check in suite.run(read_image(name, image), only=only.get(name) if only else None)
            if check.id != RUN_CHECK
        ]
        for name, image in images.items()
    }


def outcomes(incidents: Mapping[str, Incident]) -> dict[str, Outcome]:
    """Return the outcome of each case, for its image and for the fixed image."""
    before = run_checks({name: incident.image for name, incident in incidents.items()})
    results = {name: outcome(incident, before[name]) for name, incident in incidents.items()}
    fixed = {name: image for name, case in incidents.items() if (image := case.fixed) and results[name].reported}
    ids = {name: {check.id for check in _reporting(incidents[name], before[name])} for name in fixed}
    after = run_checks(fixed, ids) if fixed else {}
    unfixed = {
        name: tuple(check for check in checks if check.outcome == "failed" and not _fixes_fault(check, before[name]))
        for name, checks in after.items()
    }
    return {name: result._replace(unfixed=unfixed.get(name, ())) for name, result in results.items()}


def outcome(incident: Incident, checks: Sequence[Check]) -> Outcome:
    """Return whether what had to be reported was, and what was reported that should not have been."""
    reporting = _reporting(incident, checks)
    errors = [check for check in checks if check.outcome == "failed" and check.severity == "error"]
    alarms = tuple(check for check in errors if check not in reporting and check.id not in incident.allowed)
    findings = tuple(check for check in checks if check.outcome == "failed" and check.severity != "note")
    return Outcome(bool(reporting), alarms, findings)


def _fixes_fault(remaining: Check, before: Iterable[Check]) -> bool:
    """Return whether a check that still fails names a known fault less than before.

    A version can have several, and the one that takes its place others: a fix ends one of those that were reported.
    """
    return any(_known_faults(check) - _known_faults(remaining) for check in before if check.id == remaining.id)


def _known_faults(check: Check) -> set[str]:
    """Return the rows of facts/faults.yaml and package-faults.yaml that a check names, by their reasons."""
    return {reason for reason in _reasons() if reason in check.actual}


@functools.cache
def _reasons() -> tuple[str, ...]:
    rows = (*facts_file.read(Faults).faults, *facts_file.read(PackageFaults).faults)
    return tuple(row.why for row in rows)


def _reporting(incident: Incident, checks: Iterable[Check]) -> list[Check]:
    """Return the checks that report what must be reported."""
    report = incident.reported
    return [check for check in checks if report and check.outcome == "failed" and _matches(check, report)]


def _matches(check: Check, report: ExpectedReport) -> bool:
    first = check.actual.partition("\n")[0]
    return check.id in (report.check or check.id) and all(word in first for word in report.words)
