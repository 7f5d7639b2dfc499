"""Time planning: the process, its parts, and a thousand rows. Print medians.

Processor time, not wall time, so that a busy machine matters less. Compiled bytecode is kept, as for any user, also
where the environment says PYTHONDONTWRITEBYTECODE.

python benchmarks/plan.py
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from rdma_images import facts
from rdma_images.core import paths
from rdma_images.facts import Facts
from rdma_images.inputs import lock
from rdma_images.plan import matrix, planner
from rdma_images.plan.matrix import Matrix
from rdma_images.plan.refusals import Plan
from rdma_images.render import dockerfiles

RUNS = 11
ROWS = 1000


def main() -> None:
    """Print the processor time of each part."""
    all_facts, ours = facts.load(), matrix.load()
    large = grown_matrix(all_facts, ours)
    planned = planner.plan(large, all_facts, all_rows=True)
    rows = len(planned.images) + len(planned.refusals)
    print_times(
        "invoke plan --all, the whole process", processor_seconds(lambda: run_python("-m", "invoke", "plan", "--all"))
    )
    print_times("of it, Python itself", processor_seconds(lambda: run_python("-c", "pass")))
    print_times("of it, invoke with one empty task", processor_seconds(run_empty_task))
    print_times(
        "of it, importing pydantic", processor_seconds(lambda: run_python("-c", "import pydantic; pydantic.BaseModel"))
    )
    print_times("facts/ read and checked", processor_seconds(facts.load))
    print_times("matrix.yaml read and checked", processor_seconds(matrix.load))
    print_times("the default matrix planned", processor_seconds(lambda: planner.plan(ours, all_facts, all_rows=True)))
    refused = f"{len(planned.refusals)} of them refused, each with its nearest combination"
    print_times(
        f"{rows} rows planned, {refused}", processor_seconds(lambda: planner.plan(large, all_facts, all_rows=True))
    )
    print_times(
        f"{len(planned.images)} Dockerfiles rendered", processor_seconds(lambda: render_all(planned, all_facts, ours))
    )


def grown_matrix(all_facts: Facts, ours: Matrix) -> Matrix:
    """Return the matrix of efa-pytorch, grown to about ROWS rows."""
    bases, torches = tuple(all_facts.bases.bases), tuple(all_facts.torch.releases)
    installers = tuple(all_facts.efa_installer.releases)[: -(-ROWS // (len(bases) * len(torches)))]
    values = {"base": bases, "pytorch": torches, "efa-installer": installers}
    target = ours.target("efa-pytorch").model_copy(update={"values": values, "exclude": ()})
    return ours.model_copy(update={"targets": {"efa-pytorch": target}})


def render_all(planned: Plan, all_facts: Facts, ours: Matrix) -> None:
    """Render all Dockerfiles with the default row's wheels: locking is not measured."""
    default = planner.plan(ours, all_facts, ["efa-pytorch"]).images[0]
    wheels, toolkit, tools = lock.read_image_lock(default), lock.read_lock(lock.toolkit_request(default)), lock.tools()
    for image in planned.images:
        dockerfiles.render(image, wheels, toolkit, tools)


def run_python(*arguments: str, folder: Path = paths.PROJECT) -> None:
    """Run Python with `arguments` as a user starts it, without its output."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environ)


def run_empty_task() -> None:
    """Run the smallest task of invoke, whose time every other task has, too."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "tasks.py").write_text("from invoke import task\n\n@task\ndef plan(c): pass\n")
        run_python("-m", "invoke", "plan", folder=Path(name))


def processor_seconds(work: Callable[[], object]) -> list[float]:
    """Return the processor seconds of each run but the first, which compiles bytecode."""
    work()
    seconds = []
    for _ in range(RUNS):
        start = processor_time()
        work()
        seconds.append(processor_time() - start)
    return seconds


def processor_time() -> float:
    """Return the seconds of this process and of those that it started and that have ended."""
    used = (resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def print_times(name: str, seconds: list[float]) -> None:
    """Print a line: the median, the spread, what it was."""
    middle, shortest, longest = (1000 * value for value in (median(seconds), min(seconds), max(seconds)))
    print(f"{middle:8.1f} ms  ({shortest:.1f} to {longest:.1f})  {name}")


if __name__ == "__main__":
    main()
