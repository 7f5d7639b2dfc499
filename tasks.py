"""What you can say to rdma-images: `invoke --list`, and `invoke --help TASK` for one."""

import builtins
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit

from rdma_images import choice, paths
from rdma_images.cli import progress, show, verb
from rdma_images.model import Report
from rdma_images.site import site

# Parameters are named as their flags are typed. The first is invoke's context, which no task needs.
CHOICE = {
    "target": "A target of matrix.yaml; may be given more than once. Without it: every target.",
    "all": "The whole default matrix of the targets instead of their default rows.",
    "set": "axis=value: any value that facts/ know, also one outside the matrix; may be given more than once.",
}
JSON = {"json": "JSON on standard output, for programs."}
REHEARSE = {"rehearse": "Stand-ins for the sources out of reach, and only for those; never to be published."}
MANY = ["target", "set"]


@verb(help=CHOICE | REHEARSE | JSON, iterable=MANY)
def plan(
    _: Any, target: Any = None, all: bool = False, set: Any = None, rehearse: bool = False, json: bool = False
) -> None:
    """Say what would be built, and what is refused and why. Downloads nothing.

    For example: invoke plan --target efa-pytorch --set nccl=2.32.3
    """
    from rdma_images import plan_view

    answer = choice.plan(site(), target, all, set, rehearse)
    show(plan_view.as_json(answer) if json else plan_view.table(answer))
    if answer.refusals:
        raise Exit(code=2)


@verb(help=CHOICE | JSON, iterable=MANY)
def describe(_: Any, target: Any = None, all: bool = False, set: Any = None, json: bool = False) -> None:
    """Say what is in the images, how they want to be run, and how to run one where the fabric is not.

    For example: invoke describe --target efa-pytorch
    """
    from rdma_images import describe

    here = site()
    images = choice.images(here, target, all, set)
    show(describe.as_json(images, here.facts) if json else describe.text(images, here.facts))


@verb(help=CHOICE | REHEARSE | JSON, iterable=MANY)
def sources(
    _: Any, target: Any = None, all: bool = False, set: Any = None, rehearse: bool = False, json: bool = False
) -> None:
    """Show each source of the images, its pin, where it will come from, and whether it answers."""
    from rdma_images import sources, supply

    here = site()
    images = choice.images(here, target, all, set, rehearse)
    wanted = [one for image in images for one in sources.sources(image, here.facts)]
    supplies = supply.supply(wanted, here.mirrors, rehearse)
    if json or builtins.all(one.reachable for one in supplies):
        show(supply.as_json(supplies) if json else supply.table(supplies))
    supply.require(supplies)  # its error brings the table


@verb(
    help=CHOICE | REHEARSE | {"upgrade": "Resolve again what is locked already, to the newest versions."}, iterable=MANY
)
def lock(
    _: Any, target: Any = None, all: bool = False, set: Any = None, rehearse: bool = False, upgrade: bool = False
) -> None:
    """Pin every download of the images by its digest: wheels, pulled bases, tarballs. Writes locks/."""
    from rdma_images import relock

    here = site()
    done = relock.relock(choice.images(here, target, all, set, rehearse), here.facts, here.mirrors, upgrade, progress)
    show(relock.table(done))
    if any(one.outcome == "failed" for one in done):
        raise Exit(code=1)


@verb(help=CHOICE | REHEARSE, iterable=MANY)
def render(_: Any, target: Any = None, all: bool = False, set: Any = None, rehearse: bool = False) -> None:
    """Write the Dockerfile of each image and build/bake.json for all of them; prints where they are."""
    from rdma_images import build, order

    here = site()
    images = choice.images(here, target, all, set, rehearse)
    orders = [order.order(image, here, rehearse, progress=progress) for image in images]
    show(*(str(one.dockerfile) for one in orders), str(build.bake_file(orders, here, rehearse)))


@verb(
    help=CHOICE
    | REHEARSE
    | {
        "no-validate": "Only build.",
        "builder": "A buildx builder, on Kubernetes for example; without it the engine's own.",
        "compression": "Of the layers: zstd (default), or gzip for registries that need it.",
        "cache-from": "A registry cache to read, in buildx's notation, {image} for an image's id; may be repeated.",
        "cache-to": "A registry cache to write, likewise; {image} has to be in it where several images write one.",
    }
    | JSON,
    iterable=[*MANY, "cache_from", "cache_to"],
)
def build(
    _: Any,
    target: Any = None,
    all: bool = False,
    set: Any = None,
    rehearse: bool = False,
    no_validate: bool = False,
    builder: str = "",
    compression: str = "zstd",
    cache_from: Any = None,
    cache_to: Any = None,
    json: bool = False,
) -> None:
    """Build images and validate them; what is there already, made of the same inputs, is left as it is.

    For example: invoke build --target efa-pytorch --rehearse
    """
    from rdma_images import build, engine, order, proof, summary
    from rdma_images import report as reporting

    here = site()
    options = build.options(rehearse, builder, compression, cache_from, cache_to)
    images = choice.images(here, target, all, set, rehearse)
    orders = [order.order(image, here, rehearse, compression, progress) for image in images]
    running = engine.ensure(progress)
    built = build.build(orders, here, running, options, progress)
    reports = [] if no_validate else list(proof.prove(proof.ours(images), running, progress=progress))
    for report in reports:
        if not report.passed:
            show(reporting.table(report), file=sys.stderr)
    show(summary.as_json(built, reports) if json else summary.text(built, reports))
    _end(reports)


@verb(
    help=CHOICE
    | {
        "image": "Any image of the engine, also one that nobody here built.",
        "tier": "static (default), device (default with --host), gpu or datapath; may be given more than once.",
        "host": "A pod or machine to measure: kubectl://pod, ssh://name or local://, as testinfra writes it.",
    }
    | JSON,
    iterable=[*MANY, "image", "tier"],
)
def validate(
    _: Any,
    target: Any = None,
    all: bool = False,
    set: Any = None,
    image: Any = None,
    tier: Any = None,
    host: str = "",
    json: bool = False,
) -> None:
    """Prove images from the inside: measure what is in them and relate it to what must hold.

    For example: invoke validate --target efa-pytorch, or invoke validate --image nvcr.io/nvidia/pytorch:25.10-py3
    """
    from rdma_images import engine, proof
    from rdma_images import report as reporting

    tiers = proof.tiers(tier or (["device"] if host else None))
    if image or (host and not target and not all):
        asked = proof.foreign(image or [""])
    else:
        asked = proof.ours(choice.images(site(), target, all, set))
    running = None if host else engine.ensure(progress)
    reports = []
    for report in proof.prove(asked, running, tiers, host or None, progress):
        show(reporting.as_json(report) if json else reporting.table(report))
        reports.append(report)
    _end(reports)


PUBLISHING = {
    "to": "A registry of registries.yaml; may be given more than once.",
    "sign": "Sign with cosign: a key file, a key service's reference (awskms://…), or keyless (the CI job's identity).",
}


@verb(help={"no-open": "Only write the page; otherwise it is opened where there is a browser to open it."})
def report(_: Any, no_open: bool = False) -> None:
    """Write one page of every report under build/images/, images by validators: build/report.html."""
    from rdma_images import report

    page = report.write_page()
    show(str(page))
    if not no_open and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(page.as_uri())


@verb(positional=["log"], help={"log": "The output of a job that ran with NCCL_DEBUG=INFO.", **JSON})
def verdict(_: Any, log: str, json: bool = False) -> None:
    """Say in one line which network a job's NCCL really used: efa, eRDMA, fallback or unknown, and why.

    It ends with 0 where that is good, 1 where it is not, 3 where the log does not say.

    For example: invoke verdict worker-0.log
    """
    from rdma_images import verdict

    said = verdict.verdict(Path(log))
    show(dumps(asdict(said), indent=2) if json else f"{said.network}: {said.sentence}")
    if not said.good:
        raise Exit(code=said.exit_code)


@verb(
    help=CHOICE
    | PUBLISHING
    | {"allow-red": "Publish in spite of this red check; may be given more than once, and is recorded."}
    | JSON,
    iterable=[*MANY, "to", "allow_red"],
)
def publish(
    _: Any,
    target: Any = None,
    all: bool = False,
    set: Any = None,
    to: Any = None,
    allow_red: Any = None,
    sign: str = "",
    json: bool = False,
) -> None:
    """Push validated images with their proof to registries; what is there already is left as it is.

    For example: invoke publish --target efa-pytorch --to team-ecr
    """
    from rdma_images import plan as planning
    from rdma_images.publish import publish, registries, view
    from rdma_images.validate import suite

    here = site()
    places = registries.load().pick(to)
    images = choice.images(here, target, all, set)
    whole = planning.plan(here.matrix, here.facts, everything=True).images
    found = publish.items(images, whole, here.matrix, suite.digest(), allow_red or ())
    outcomes = publish.publish(found, places, _means(sign))
    show(view.as_json(outcomes) if json else view.text(outcomes))
    if any(one.error for one in outcomes):
        raise Exit(code=1)


@verb(
    help={
        "image": "host/repository:tag or host/repository@sha256:…, in any registry.",
        "key": "The public key, or a key service's reference, that must have signed it.",
        "identity": "Whose keyless signature it must carry, as a regular expression; with --issuer.",
        "issuer": "Who vouches for that identity, as https://token.actions.githubusercontent.com.",
    }
    | JSON
)
def verify(_: Any, image: str, key: str = "", identity: str = "", issuer: str = "", json: bool = False) -> None:
    """Read back what a published image carries: whose signature, whose report, how it was built."""
    from rdma_images.publish import keys, registries, view
    from rdma_images.publish import verify as verifying

    trust = keys.trust(key, identity, issuer)
    host = verifying.split(image)[0]
    found = verifying.verify(image, registries.known().of_host(host), trust, progress)
    show(view.as_json(found) if json else view.verified(found))
    if not builtins.all(one.holds for one in found):
        raise Exit(code=1)


@verb(
    name="matrix",
    help={
        "target": CHOICE["target"],
        "shard": "i/n: only the i-th of n disjoint parts, in which images with the same wheels stay together.",
        "changed-since": "A commit: only images whose inputs have changed since.",
        "runner": "platform=label of the machines for a platform; may be given more than once.",
    },
    iterable=["target", "runner"],
)
def ci_matrix(_: Any, target: Any = None, shard: str = "", changed_since: str = "", runner: Any = None) -> None:
    """Print the whole matrix as the value of a GitHub Actions matrix."""
    from rdma_images.ci import jobs, measured, select

    here = site()
    whole = choice.images(here, target, True, None)
    images = select.select(whole, shard, changed_since, progress)
    runners = choice.changes(runner, "--runner", "platform=label")
    show(jobs.as_github(jobs.jobs(images, whole, here.matrix, measured.slowest(), runners)))


@verb(name="locked", help=CHOICE, iterable=MANY)
def ci_locked(_: Any, target: Any = None, all: bool = False, set: Any = None) -> None:
    """Fail where locks/ lacks what building the images on this machine, to ship, would need; asks no network."""
    from rdma_images.ci import locked

    here = site()
    locked.require(choice.images(here, target, all, set), here.facts, here.mirrors)


@verb(name="measured")
def ci_measured(_: Any) -> None:
    """Keep how long the uncached builds under build/images/ took, from which ci.matrix takes time limits; print it."""
    from rdma_images.ci import measured

    show(dumps(measured.keep(), indent=2))


@verb(name="summary")
def ci_summary(_: Any) -> None:
    """Print what was built, proven and published as a Markdown table."""
    from rdma_images.ci import summary

    show(summary.summary())


@verb(name="join", help=PUBLISHING | JSON, iterable=["to"])
def ci_join(_: Any, to: Any = None, sign: str = "", json: bool = False) -> None:
    """Join the platforms of published images into one index each."""
    from rdma_images.publish import join, registries, view

    here = site()
    outcomes = join.join(choice.images(here, None, True, None), here.matrix, registries.load().pick(to), _means(sign))
    show(view.as_json(outcomes) if json else view.joined(outcomes))
    if any(one.error for one in outcomes):
        raise Exit(code=1)


def _means(sign: str) -> Any:
    """What publishing needs on this machine; the engine is looked for when something has to be sent."""
    from functools import cache

    from rdma_images import engine
    from rdma_images.publish import keys, send
    from rdma_images.publish import progress as shown

    return send.Means(cache(lambda: engine.ensure(progress)), shown.watcher(), keys.signer(sign))


@verb(name="up")
def engine_up(_: Any) -> None:
    """Find a usable Docker engine, or start the private one; shows what was found."""
    from rdma_images import engine
    from rdma_images.engine import status

    engine.ensure(progress)
    show(status.table(status.status()))


@verb(name="status", help=JSON)
def engine_status(_: Any, json: bool = False) -> None:
    """Show the engine: where it answers, its versions, its disk and the limit of its cache."""
    from rdma_images.engine import status

    seen = status.status()
    show(dumps(seen.json(), indent=2) if json else status.table(seen))


@verb(name="down", help={"purge": "Also remove all that it keeps: images, caches, downloads of its own."})
def engine_down(_: Any, purge: bool = False) -> None:
    """End the private engine, and only what it started."""
    from rdma_images import engine

    show("ended" if engine.down(purge, progress) else "there was nothing to end")


@verb(name="bump", help={"write": "Make the edit, and not only show it."})
def matrix_bump(_: Any, write: bool = False) -> None:
    """Propose the newest default rows that pass every rule, as an edit of matrix.yaml."""
    from rdma_images import bump

    proposal = bump.propose(site().facts, write=write)
    show(proposal.diff or "matrix.yaml is as new as the facts let it be")
    for remark in proposal.remarks:
        progress(remark)


@verb(
    name="update",
    help={
        "all": "Read every release again, not only those of the matrix; takes minutes.",
        "write": "Add a row to facts/ for each new release.",
    }
    | JSON,
)
def facts_update(_: Any, all: bool = False, write: bool = False, json: bool = False) -> None:
    """Read again what the package index and the makers' pages tell of versions, and show what is new or different."""
    from rdma_images import facts_update
    from rdma_images.facts_update import view

    here = site()
    found = facts_update.update(here.facts, here.matrix, here.mirrors, all, progress=progress)
    written = facts_update.write(found) if write else ()
    show(view.as_json(found) if json else view.table(found, written))


@verb(name="prune", help={"cache": "Also empty the builder's cache, which otherwise keeps to its own limit."})
def engine_prune(_: Any, cache: bool = False) -> None:
    """Remove our images that the default matrix does not have, and those whose name a newer one took."""
    from rdma_images import engine, prune

    wanted = [image.id for image in choice.plan(site(), None, True, None).images]
    running = engine.ensure(progress)
    found = prune.superfluous(running, wanted)
    prune.remove(running, found, cache)
    show(*(f"removed {one.ref or one.digest}" for one in found))


@verb(
    name="test",
    help={
        "unit": "Only the fast tests, which need no engine.",
        "exhaustive": "Also the many alike: each fault that a validator tells, each broken data path.",
        "k": "Only tests whose names match, as pytest has it.",
    },
)
def run_tests(_: Any, unit: bool = False, exhaustive: bool = False, k: str = "") -> None:
    """Run the tests: the fast ones first, then the real ones, with an engine, wheels, registries and machines."""
    command = [sys.executable, "-m", "pytest"]
    command += ["-m", "not e2e"] if unit else [] if exhaustive else ["-m", "not exhaustive"]
    command += ["-k", k] if k else []
    raise Exit(code=subprocess.run(command, cwd=paths.PROJECT).returncode)


def _end(reports: Sequence[Report]) -> None:
    """End with 1 where a report is red."""
    if not builtins.all(report.passed for report in reports):
        raise Exit(code=1)


ns = Collection(plan, describe, sources, lock, render, build, validate, report, verdict, publish, verify, run_tests)
ns.add_collection(Collection("facts", facts_update))
ns.add_collection(Collection("matrix", matrix_bump))
ns.add_collection(Collection("engine", engine_up, engine_status, engine_prune, engine_down))
ns.add_collection(Collection("ci", ci_matrix, ci_locked, ci_measured, ci_summary, ci_join))
