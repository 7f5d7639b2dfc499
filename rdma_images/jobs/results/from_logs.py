"""The result of a job from the logs of its ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.sizes import message
from rdma_images.jobs.results import causes, expectations, expected, run_folder, run_results, speed
from rdma_images.jobs.results.expectations import Held
from rdma_images.jobs.results.job_spec import Asked
from rdma_images.jobs.results.result import Expected, Leg, Result

NAMES = {"efa": "EFA", "one node": "one node, no network"}


def result(
    logs: Sequence[Path],
    job: Asked | None,
    tcp: Sequence[Path] = (),
    base: Path | None = None,
    against: Held | None = None,
) -> Result:
    """The result of the run that left `logs`, and of the same run over TCP that left `tcp`.

    `job` is the run's job.json; None for a job that was written elsewhere, and `against` is then what else is
    known about it. Places are relative to `base`. Raises RdmaImagesError for a log that cannot be read.
    """
    known = against or expectations.held(job)
    found = (
        run_results.leg("fabric", logs, known, base),
        *((run_results.leg("tcp", tcp, known, base),) if tcp else ()),
    )
    near = expected.expected(found[0], known)
    if expected.is_below(near, found[0].largest):
        near = replace(near, causes=causes.causes(found[0], known))
    states = {leg.good for leg in found}
    return Result(
        job=job.name if job else "",
        digest=job.digest if job else "",
        instance=known.instance,
        nodes=known.nodes,
        fabric=known.fabric,
        legs=found,
        expected=near,
        sentence=_sentence(found, near),
        exit_code=1 if False in states else 3 if None in states else 0,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def of_run(folder: Path) -> Result:
    """The result of the run in `folder`. Raises RdmaImagesError where it has no logs."""
    logs = run_folder.logs(folder)
    if not logs:
        raise RdmaImagesError(f"{folder}: no logs/ with the logs of a run\ngive the folder of a run, or its logs")
    return result(logs, run_folder.job(folder), run_folder.logs(folder, "tcp"), folder)


def _sentence(found: Sequence[Leg], near: Expected) -> str:
    """The result in one sentence: what is wrong first, else which fabric on how many adapters, and how fast."""
    wrong = [problem for leg in found for problem in leg.problems if problem.severity != "warning"]
    if wrong:
        worst = min(wrong, key=lambda problem: problem.severity != "error")
        more = f" ({len(wrong) - 1} more below)" if len(wrong) > 1 else ""
        return f"{worst.sentence}{more}"
    return "; ".join(_good(found, near))


def _good(found: Sequence[Leg], near: Expected) -> Iterator[str]:
    leg, row = found[0], found[0].largest
    name = NAMES.get(leg.network, leg.network)
    counts = {int(node.adapters.value) for node in leg.nodes if node.adapters}
    if leg.network == "one node" or not leg.nodes:
        yield name
    else:
        each = f"{min(counts)} adapter{'s' if min(counts) != 1 else ''} of each of " if counts else ""
        yield f"{name} on {each}{len(leg.nodes)} nodes"
    direct = {node.gpudirect.value for node in leg.nodes if node.gpudirect}
    if direct:
        said = {frozenset({"yes"}): "GPUDirect RDMA", frozenset({"no"}): "no GPUDirect RDMA"}
        yield said.get(frozenset(direct), "GPUDirect RDMA on some channels")
    busbw = expected.best(row)
    if row and busbw is not None:
        share = f", {near.share:.0%} of the line rate" if near.share else ""
        below = ", below what is published" if expected.is_below(near, row) else ""
        yield f"{row.collective or 'collective'} of {message(row.size)} at {busbw:.4g} GB/s{share}{below}"
    both = [one for one in speed.beside(found) if one.ratio]
    if both:
        at = "" if row and both[-1].size == row.size else f" at {message(both[-1].size)}"
        yield f"{both[-1].ratio:.1f} times TCP{at}"
