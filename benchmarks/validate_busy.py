"""Whether a busy machine changes the answer of a validation.

python benchmarks/validate_busy.py REF [--runs 20] [--load 12]

Validates an image of the engine again and again beside `stress-ng` (Debian package), which keeps as many processes
computing as it takes to bring the load to the given number. Ends with 1 where a check of two runs differs.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from rdma_images import engine as engines
from rdma_images.inspection.report import Report
from rdma_images.validate.validate_image import validate

WARM_UP_SECONDS = 60  # seconds until the load of a minute is there


def main() -> None:
    """Validate, compare, and print a table."""
    arguments = _arguments()
    reports, seconds, loads = [], [], []
    engine = engines.ensure()
    with _busy(max(0, arguments.load - round(os.getloadavg()[0]))):
        for run in range(arguments.runs):
            start = time.perf_counter()
            reports.append(validate(arguments.ref, engine, again=True))
            seconds.append(time.perf_counter() - start)
            loads.append(os.getloadavg()[0])
            print(f"{run + 1}: {reports[-1].counts}, {seconds[-1]:.1f} s, load {loads[-1]:.1f}", flush=True)
    differences = {line for report in reports[1:] for line in _differences(reports[0], report)}
    print("| runs | seconds, median (least to most) | load | checks that differ |")
    print("|---|---|---|---|")
    spread = f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
    print(f"| {len(reports)} | {spread} | {min(loads):.1f} to {max(loads):.1f} | {len(differences)} |")
    for line in sorted(differences):
        print(line)
    sys.exit(bool(differences))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Validate an image again and again on a busy machine.")
    parser.add_argument("ref")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--load", type=int, default=12)
    return parser.parse_args()


@contextlib.contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Keep as many processes computing; none where others already do."""
    if not processes:
        yield
        return
    with subprocess.Popen(["stress-ng", "--quiet", "--cpu", str(processes)]) as stress:
        try:
            time.sleep(WARM_UP_SECONDS)
            yield
        finally:
            stress.terminate()


def _differences(first: Report, other: Report) -> Iterator[str]:
    """Yield what two reports say differently, without the seconds of their checks."""
    before, after = (
        {c.id: (c.outcome, c.severity, c.expected, c.actual, c.fix, c.reason) for c in report.checks}
        for report in (first, other)
    )
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name}: {before.get(name)} and {after.get(name)}"


if __name__ == "__main__":
    main()
