"""Validate one image: measure it, run the validators over the measurements, and write the report.

The measuring modules are imported when they are used: an image whose report is cached needs none of them.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rdma_images import chain, report
from rdma_images import engine as engines
from rdma_images.core.check import Check
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord, Image
from rdma_images.core.paths import COMMAND, state_folder
from rdma_images.core.progress import Progress, report_waiting, silent
from rdma_images.engine import Engine, docker_command
from rdma_images.inspection.inspection import ImageConfig, Inspection
from rdma_images.inspection.measurements import Measured
from rdma_images.inspection.report import Report
from rdma_images.report.report_files import REPORT, report_folder
from rdma_images.validate import expected_fabric, suite
from rdma_images.validate.image_config import hide_secret_values, read_image_config


class FabricScenario(NamedTuple):
    """A fabric of chain.FABRICS and an instance type; "" for what the image shows."""

    fabric: str = ""
    instance: str = ""


NO_SCENARIO = FabricScenario()


@dataclass(frozen=True)
class _Validation:
    """A validation that has begun: its subject, its scenario and its report's folder."""

    image: Image | None
    build: BuildRecord | None
    scenario: FabricScenario
    tiers: tuple[str, ...]
    folder: Path
    started: float = field(default_factory=time.monotonic)

    def write_report(self, image_config: ImageConfig, measured: Measured, others: tuple[Check, ...] = ()) -> Report:
        """Write and return the report of the validators' checks, and of `others`: the user's, and emulated ones."""
        expected = expected_fabric.image_expectations(image_config, measured, self.image)
        requested = chain.requested_fabric(*self.scenario)
        expected = expected.model_copy(update={"instance": self.scenario.instance, "requested_fabric": requested})
        if not expected.fabric and requested in ("efa", "erdma"):
            expected = expected.model_copy(update={"fabric": requested, "reason": "asked for"})
        inspection = Inspection(subject=image_config, expected=expected, measured=measured)
        earlier = REPORT.read_file_if_valid(self.folder / REPORT.name)
        checks = suite.run(inspection, self.tiers)
        rehearsal = (*(self.build.stand_ins if self.build else ()), *image_config.stand_ins)
        image_report = Report(
            ref=image_config.ref,
            digest=image_config.digest,
            suite=suite.digest(),
            image_id=self.image.id if self.image else None,
            stand_ins=tuple(dict.fromkeys(rehearsal)),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self.started, 3),
            checks=(*checks, *others),
            chain=chain.compute_chain(inspection, *self.scenario),
            inspection=inspection.model_copy(update={"subject": hide_secret_values(image_config)}),
            base_faults=_base_faults(checks, self.image),
            no_longer_checked=_no_longer_checked(checks, earlier),
        )
        report.write(image_report, self.folder)
        return image_report

    def report_image(self, ref: str, digest: str, engine: Engine, progress: Progress) -> tuple[Report, bool]:
        """Validate an image of an engine; return its report, and whether measuring again would not change it."""
        from rdma_images import datapath

        commands = self.image.checks if self.image and "static" in self.tiers else ()
        instance = self.scenario.instance
        image_config, measured, own = _measure_in_engine(ref, digest, engine, commands, progress, instance)
        wants_datapath = "datapath" in self.tiers
        emulated = datapath.run(digest, engine, self.folder, self.image, progress) if wants_datapath else ()
        image_report = self.write_report(image_config, measured, (*own, *emulated))
        # An emulator that is unavailable today, and a machine that is busy, may not be so tomorrow.
        was_emulated = not emulated or any(check.outcome != "skipped" for check in emulated)
        return image_report, was_emulated and not image_report.unmeasured


def validate(
    ref: str,
    engine: Engine | None,
    image: Image | None = None,
    build: BuildRecord | None = None,
    tiers: tuple[str, ...] = ("static",),
    host: str | None = None,
    again: bool = False,
    progress: Progress = silent,
    scenario: FabricScenario = NO_SCENARIO,
) -> Report:
    """Validate an image, write its report's files, and return the report.

    report.json, report.xml and report.html are in `report_folder`.

    Args:
        ref: The image, whose digest the report has; "" with a `host`.
        engine: What has the image; None with a `host`.
        image: As planned; without it the image is validated against its own labels.
        build: As built; its digest says which image it is, whatever the name is by now.
        tiers: "static" is always added for an image in the engine, and for a `host` when `scenario` is set. Without
            `host`, the checks of "device" and "gpu" are skipped.
        host: Where to measure instead: "kubectl://pod", "ssh://name" or "local://".
        scenario: Which fabric and instance type the chain is asked about.
        again: Measure anew, also where the report of an unchanged image, suite and scenario is kept.

    Raises:
        RefusedError: The engine does not have the image of `build` any more.
        RdmaImagesError: There is nothing to validate, or nobody answers.
    """
    chain.requested_fabric(*scenario)  # what is refused is refused before anything is measured
    if not host or any(scenario):  # the answer is from the files, which are of the tier static
        tiers = tuple(dict.fromkeys(("static", *tiers)))
    validation = _Validation(image, build, scenario, tiers, report_folder(ref, image, host, *scenario))
    if host or engine is None:
        return validation.write_report(*_measure_elsewhere(ref, host or "local://", tiers, progress, scenario.instance))
    if build:  # the name may be another folder's image by now
        command = f"{COMMAND} build {image.options}" if image else f"{COMMAND} build"
        docker_command.build_reference(build, engine, command, progress)
    digest = build.digest if build else docker_command.image_id(engine, ref) or _digest(engine, ref)
    kept = kept_report(ref, digest, image, (*tiers, *filter(None, scenario)))
    previous = None if again else REPORT.read_file_if_valid(kept)
    if previous and previous.digest == digest:
        progress(f"{ref} is up to date: this suite has validated it")
        return report.write_cached(previous, validation.folder)
    image_report, is_final = validation.report_image(ref, digest, engine, progress)
    if is_final:
        REPORT.write_file(kept, image_report)
    return image_report


def kept_report(ref: str, digest: str, image: Image | None, tiers: tuple[str, ...]) -> Path:
    """Return where the report of an image is kept, by what it depends on: name, suite, tiers, scenario and plan."""
    versions = sorted((name, c.version) for name, c in image.components.items()) if image else None
    checks = image.checks if image else ()
    depends = [digest, ref, suite.digest(), image.id if image else None, versions, sorted(tiers), checks]
    key = hashlib.sha256(json.dumps(depends).encode()).hexdigest()
    return state_folder() / "reports" / key / REPORT.name


def _measure_in_engine(
    ref: str, digest: str, engine: Engine, commands: Sequence[str], progress: Progress, instance: str
) -> tuple[ImageConfig, Measured, tuple[Check, ...]]:
    """Return an image's configuration, what was measured in it, and how the target's own `commands` end in it."""
    from rdma_images.validate import own_checks, probe_image

    progress(f"validating {ref}")
    with closing(engines.client(engine)) as client:
        with report_waiting(progress, lambda: "the engine to unpack the image"):
            image_config = read_image_config(client, ref, digest)
        measured = probe_image.measure_image(client, engine, image_config, progress, instance)
        return image_config, measured, own_checks.run(client, engine, digest, commands, progress)


def _measure_elsewhere(
    ref: str, host: str, tiers: tuple[str, ...], progress: Progress, instance: str
) -> tuple[ImageConfig, Measured]:
    """Return the configuration of the image that a host runs, and what was measured there."""
    if "datapath" in tiers:
        raise RefusedError("--tier datapath is for an image of an engine\nleave --host out")
    from rdma_images.validate import probe_host

    progress(f"validating {' on '.join(filter(None, (ref, host)))}")
    with report_waiting(progress, lambda: f"what {host} measures"):
        measured = probe_host.measure_host(host, tiers, instance)
    return probe_host.host_config(ref, host, measured), measured


def _digest(engine: Engine, ref: str) -> str:
    """Return the digest of an image, asked of any engine; raises RdmaImagesError where it has none."""
    with closing(engines.client(engine)) as client:
        return read_image_config(client, ref).digest


def _no_longer_checked(checks: Sequence[Check], earlier: Report | None) -> tuple[str, ...]:
    """Return the checks that passed in the earlier report of an image, and are skipped or not measured now."""
    passed = {check.id for check in earlier.checks if check.outcome == "passed"} if earlier else set()
    return tuple(check.id for check in checks if check.outcome in ("skipped", "not measured") and check.id in passed)


def _base_faults(checks: Sequence[Check], image: Image | None) -> tuple[str, ...]:
    """Return the failed checks that fail alike in the image below the added fabric."""
    base_findings = image.onto.base.failed if image and image.onto else {}
    return tuple(
        check.id for check in checks if check.outcome == "failed" and base_findings.get(check.id) == check.actual
    )
