"""Prove an image: measure what is in it, relate it to what must hold, and keep the proof."""

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from rdma_images import datapath, paths, report
from rdma_images import engine as engines
from rdma_images.engine import Engine, Progress, silent
from rdma_images.errors import RefusedError
from rdma_images.model import Build, Check, Image, Report
from rdma_images.report import junit
from rdma_images.validate import elsewhere, fabric, kept, measuring, suite
from rdma_images.validate import subject as subjects
from rdma_images.validate.case import Case
from rdma_images.validate.measured import Measured


def validate(
    ref: str,
    engine: Engine | None,
    image: Image | None = None,
    build: Build | None = None,
    tiers: tuple[str, ...] = ("static",),
    host: str | None = None,
    reuse: bool = True,
    progress: Progress = silent,
) -> Report:
    """Validate the image `ref` of `engine` and write report.json, report.xml and report.html to `folder_of`.

    `image` and `build` say what was planned and built; without them it is an image that somebody else made, and is held
    to what it says of itself. `host` is where to measure instead: a pod that runs the image, or a machine
    ("kubectl://pod", "ssh://name", "local://"); then no engine is needed, and the tiers "device" and "gpu" can be asked
    for. An unchanged image, suite and question is answered from the report kept, which says `reused`.
    The tier "datapath" comes with the static one, in one report. The report's digest is that of the image measured, and
    empty for a host. Raises RefusedError where that is not the image of `build`, RdmaImagesError where there is nothing
    to validate or nobody answers.
    """
    tiers = tuple(dict.fromkeys(("static", *tiers))) if "datapath" in tiers else tiers
    started = time.monotonic()
    folder = folder_of(ref, image, host)
    if host or engine is None:
        if "datapath" in tiers:
            raise RefusedError("--tier datapath is for an image of an engine: leave --host out")
        progress(f"validating {' on '.join(filter(None, (ref, host)))}")
        found = elsewhere.measure(host or "local://", tiers)
        return _report(elsewhere.subject(ref, host or "local://", found), found, image, build, tiers, folder, started)
    with closing(engines.client(engine)) as client:
        digest = subjects.digest(client, ref)
        _require(ref, digest, build)
        name = kept.key(ref, digest, suite.digest(), image, tiers)
        if reuse and (known := kept.find(name, digest)):
            progress(f"{ref} was proven by this suite: nothing to validate")
            return report.publish_kept(*known, folder)
        progress(f"validating {ref}")
        about = subjects.subject(client, ref, digest)
        found = measuring.measure(client, engine, about)
    emulated = datapath.run(digest, engine, image, progress, folder) if "datapath" in tiers else ()
    answer = _report(about, found, image, build, tiers, folder, started, emulated)
    # Where the emulator could not be had today, it may be tomorrow.
    if not emulated or any(check.outcome != "skipped" for check in emulated):
        kept.keep(name, answer, folder / "report.xml")
    return answer


def folder_of(ref: str, image: Image | None = None, host: str | None = None) -> Path:
    """Where the report of an image goes: build/images/<image id>/, or <reference>/ for one that has no id here.

    What was measured on a host goes beside it, to <name>@<host>/: it does not take the place of the image's own proof.
    """
    name = "@".join(filter(None, (image.id if image else ref, host)))
    return paths.image_folder("".join(c if c.isalnum() or c in "._-@" else "-" for c in name))


def _require(ref: str, digest: str, build: Build | None) -> None:
    """Raise RefusedError unless the image that the engine calls `ref` is the one of `build`."""
    if build and digest != build.digest:
        raise RefusedError(
            f"{ref} is {digest} in this engine, but {build.digest} was built: somebody gave its name to another image. "
            f"`invoke build` gives it back; `invoke validate --image {ref}` looks at the other"
        )


def _report(
    about: subjects.Subject,
    found: Measured,
    image: Image | None,
    build: Build | None,
    tiers: tuple[str, ...],
    folder: Path,
    started: float,
    emulated: tuple[Check, ...] = (),
) -> Report:
    """Run the suite over what was found, and write what it says, and the checks made elsewhere, into `folder`."""
    case = Case(subject=about, expected=fabric.expected(about, found, image), measured=found)
    folder.mkdir(parents=True, exist_ok=True)
    checks = suite.run(case, tiers, folder / "report.xml")
    if emulated:
        junit.add(folder / "report.xml", emulated)
    answer = Report(
        ref=about.ref,
        digest=about.digest,
        suite=suite.digest(),
        image_id=image.id if image else None,
        rehearsal=tuple(dict.fromkeys((*(build.rehearsal if build else ()), *about.rehearsal))),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 3),
        checks=(*checks, *emulated),
        facts=case.model_copy(update={"subject": subjects.masked(about)}).model_dump(mode="json"),
    )
    report.write(answer, folder)
    return answer
