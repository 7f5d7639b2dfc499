"""Run the checks in order: what is loaded, then the device, then one exchange after the other."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from rdma_images.core.pipeline import Check, Fabric
from rdma_images.core.progress import Progress
from rdma_images.datapath import exchanges, files, limits, mpi
from rdma_images.datapath.checks import CheckSubject, failed, skipped
from rdma_images.datapath.exchange import Exchange, perform
from rdma_images.datapath.lab import Lab

Step = tuple[CheckSubject, Callable[[Lab], Check]]

GUESTS = CheckSubject(
    "guests",
    "Two machines with the image's files start, and stay up until all checks are done",
    "answers from both",
    "read datapath-console.log beside the report",
)


def _with_tool(exchange: Exchange, lab: Lab) -> Check:
    """Run an exchange for which the image may lack the tool."""
    if exchange.tool not in lab.survey.tools:
        return skipped(exchange.subject, f"the image has no {exchange.tool}")
    return perform(lab, exchange)


def _libfabric(exchange: Exchange, provider: str, lab: Lab) -> Check:
    """Run an exchange over one of libfabric's providers, where the image has libfabric with that provider."""
    if lab.libfabric is None:
        return skipped(exchange.subject, "the image has no libfabric")
    if lab.libfabric.status == 0 and f"{provider}:" not in lab.libfabric.output.split():
        return skipped(exchange.subject, f"the image's libfabric was built without its {provider} provider")
    return perform(lab, exchange)


FILES: tuple[Step, ...] = (
    (files.LIBIBVERBS, files.libibverbs),
    (files.PROVIDERS, files.providers),
    (files.MEMLOCK, files.memlock),
    (files.DEVICE, files.device),
)
EXCHANGES: tuple[Step, ...] = (
    (exchanges.RC.subject, partial(_with_tool, exchanges.RC)),
    (exchanges.RDMA_CM.subject, partial(_with_tool, exchanges.RDMA_CM)),
    (exchanges.WRITE.subject, partial(_with_tool, exchanges.WRITE)),
    (exchanges.TCP.subject, partial(_libfabric, exchanges.TCP, "tcp")),
    (exchanges.MSG.subject, partial(_libfabric, exchanges.MSG, "verbs")),
    (exchanges.RDM.subject, partial(_libfabric, exchanges.RDM, "verbs")),
    (mpi.SUBJECT, mpi.exchange),
)


def all_skipped(reason: str, fabric: Fabric | None) -> tuple[Check, ...]:
    """Return every check skipped, for one reason."""
    return (*(skipped(subject, reason) for subject, _ in (*FILES, *EXCHANGES)), *limits.hardware_checks(fabric))


def after_lost_guest(checks: list[Check], error: Exception, fabric: Fabric | None) -> tuple[Check, ...]:
    """Return the checks done before a guest was lost, that failure, and the rest skipped."""
    done = {check.id for check in checks}
    rest = (check for check in all_skipped("the guests were lost before", fabric) if check.id not in done)
    return (*checks, failed(GUESTS, str(error)), *rest)


def run_steps(lab: Lab, fabric: Fabric | None, progress: Progress) -> Iterator[Check]:
    """Yield every check of the tier, each with the seconds it took. Raises GuestError when a guest is lost."""
    for step in FILES:
        yield (check := _take(step, lab, progress))
    no_device = check.outcome == "failed"
    for step in EXCHANGES:
        yield skipped(step[0], f"no device to try it on: see {check.id}") if no_device else _take(step, lab, progress)
    yield from limits.hardware_checks(fabric)


def _take(step: Step, lab: Lab, progress: Progress) -> Check:
    """Take a step, report its result, and note how long it took."""
    subject, function = step
    started = time.monotonic()
    check = function(lab)
    progress(f"datapath: {subject.title}: {check.outcome}")
    return replace(check, seconds=round(time.monotonic() - started, 3))
