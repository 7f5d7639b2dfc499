"""How long planning takes: the whole process, its parts, and a thousand rows planned and rendered. Prints medians.

python benchmarks/plan.py
"""

import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

from rdma_images import facts, lock, matrix, plan, render
from rdma_images.facts import Facts
from rdma_images.matrix import Matrix
from rdma_images.model import Plan

RUNS = 7
ROWS = 1000


def main() -> None:
    """Measure, and print a line each."""
    known, ours = facts.load(), matrix.load()
    large = thousand(known, ours)
    planned = plan.plan(large, known, everything=True)
    rows = len(planned.images) + len(planned.refusals)
    say("invoke plan --all, the whole process", measured(whole_process))
    say("facts/ read and checked", measured(facts.load))
    say("matrix.yaml read and checked", measured(matrix.load))
    say("the default matrix planned", measured(lambda: plan.plan(ours, known, everything=True)))
    refused = f"{len(planned.refusals)} of them refused, each with its nearest combination"
    say(f"{rows} rows planned, {refused}", measured(lambda: plan.plan(large, known, everything=True)))
    say(f"{len(planned.images)} Dockerfiles rendered", measured(lambda: rendered(planned, known, ours)))


def thousand(known: Facts, ours: Matrix) -> Matrix:
    """The matrix of efa-pytorch, grown to every base and torch, and as many installers as give ROWS rows."""
    bases, torches = tuple(known.bases.bases), tuple(known.torch.releases)
    installers = tuple(known.efa.releases)[: -(-ROWS // (len(bases) * len(torches)))]
    values = {"base": bases, "pytorch": torches, "efa-installer": installers}
    target = ours.target("efa-pytorch").model_copy(update={"values": values, "exclude": ()})
    return ours.model_copy(update={"targets": {"efa-pytorch": target}})


def rendered(planned: Plan, known: Facts, ours: Matrix) -> None:
    """Every image's Dockerfile, all with the wheels of the default row: locking the others is no part of this."""
    default = plan.plan(ours, known, ["efa-pytorch"]).images[0]
    wheels, toolkit, tools = lock.load(default), lock.toolkit(default), lock.tools()
    for image in planned.images:
        render.render(image, wheels, toolkit, tools, known)


def whole_process() -> None:
    """What a user waits for; its output goes nowhere."""
    command = [sys.executable, "-m", "invoke", "plan", "--all"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measured(work: Callable[[], object]) -> list[float]:
    """Seconds of each run."""
    seconds = []
    for _ in range(RUNS):
        start = perf_counter()
        work()
        seconds.append(perf_counter() - start)
    return seconds


def say(what: str, seconds: list[float]) -> None:
    """A line: the median, the spread, what it was."""
    middle, least, most = (1000 * value for value in (median(seconds), min(seconds), max(seconds)))
    print(f"{middle:8.1f} ms  ({least:.1f} to {most:.1f})  {what}")


if __name__ == "__main__":
    main()
