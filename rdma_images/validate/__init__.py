"""Prove an image: measure what is in it, relate it to what must hold, and keep the proof."""

import time
from datetime import UTC, datetime
from pathlib import Path

from rdma_images import engine as engines
from rdma_images import paths
from rdma_images.engine import Engine
from rdma_images.model import Build, Image, Report
from rdma_images.report import write
from rdma_images.validate import container, door, fabric, probing, subject, suite
from rdma_images.validate.case import Case
from rdma_images.validate.measured import Measured

PROBE_LIMIT = 150.0  # seconds for all probes of one image


def validate(
    ref: str,
    engine: Engine,
    image: Image | None = None,
    build: Build | None = None,
    tiers: tuple[str, ...] = ("static",),
    host: str | None = None,
) -> Report:
    """Validate the image `ref` of `engine` and write report.json, report.xml and report.html.

    `image` and `build` say what was planned and built; without them it is an image that somebody else made, and is held
    to what it says of itself. `host` is a pod or a machine to measure instead ("kubectl://pod", "ssh://name").
    The files go to build/images/<image id>/, for an image not planned here to build/images/<its name>/.
    Raises RdmaImagesError where there is nothing to validate or the engine does not answer.
    """
    started = time.monotonic()
    client = engines.client(engine)
    try:
        about = subject.subject(client, ref)
        with container.sealed(client, about.digest) as box:
            found = _measure(box, engine)
    finally:
        client.close()
    case = Case(subject=about, expected=fabric.expected(about, found, image), measured=found)
    folder = paths.image_folder(image.id if image else folder_name(ref))
    folder.mkdir(parents=True, exist_ok=True)
    checks = suite.run(case, tiers, folder / "report.xml")
    report = Report(
        ref=ref,
        digest=build.digest if build else about.digest,
        suite=suite.digest(),
        image_id=image.id if image else None,
        rehearsal=build.rehearsal if build else about.rehearsal,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 3),
        checks=checks,
        facts=case.model_dump(mode="json"),
    )
    write(report, folder)
    return report


def folder_name(ref: str) -> str:
    """The folder of an image that has no id here: its reference, as a file name."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in ref)


def report_path(image_id: str) -> Path:
    """Where the report of an image lies."""
    return paths.image_folder(image_id) / "report.json"


def _measure(box: container.Sealed, engine: Engine) -> Measured:
    if not box.running:
        return Measured(missing=dict.fromkeys(probing.STATIC, "nothing in the image can be started"))
    inside = door.host(f"docker://{box.container.id}", PROBE_LIMIT, engine.environ())
    found = probing.probe(inside)
    return Measured(missing=dict.fromkeys(probing.STATIC, found)) if isinstance(found, str) else found
