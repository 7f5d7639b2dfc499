"""How long it takes until a changed script is in a validated image.

python benchmarks/changed_script.py FOLDER SCRIPT --target NAME [--runs 5] [--program rdma-images] [--other PROGRAM]

FOLDER has a matrix.yaml with the target, SCRIPT is one of its `files`. The image is built and validated once; then a
line is added to the script, and the target built and validated again. `--other` is the command of another version of
this tool: the two take turns, so that what else the machine does slows both. At the end the script is put back.
"""

import argparse
import os
import resource
import statistics
import subprocess
import time
from pathlib import Path


def main() -> None:
    """Time the programs in turns, and print a table."""
    arguments = _arguments()
    programs = [arguments.program, *([arguments.other] if arguments.other else [])]
    script = Path(arguments.folder) / arguments.script
    before = script.read_bytes()
    rows: dict[str, list[tuple[float, float, float]]] = {program: [] for program in programs}
    try:
        for run in range(arguments.runs + 1):
            for program in programs:
                script.write_bytes(before + f"\n# {time.time_ns()}\n".encode())
                row = _timed([program, "build", "--target", arguments.target, "--rehearse"], arguments.folder)
                if run:  # the first one measures what later ones need not
                    rows[program].append(row)
    finally:
        script.write_bytes(before)
    print("| program | seconds, median (least to most) | of the command's own processor time | load of the machine |")
    print("|---|---|---|---|")
    for program, timed in rows.items():
        walls, processor, loads = zip(*timed, strict=True)
        spread = f"{statistics.median(walls):.1f} ({min(walls):.1f} to {max(walls):.1f})"
        print(f"| {program} | {spread} | {statistics.median(processor):.1f} | {min(loads):.1f} to {max(loads):.1f} |")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time the build and the validation of a changed script.")
    parser.add_argument("folder")
    parser.add_argument("script")
    parser.add_argument("--target", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--program", default="rdma-images")
    parser.add_argument("--other", default="")
    return parser.parse_args()


def _timed(command: list[str], folder: str) -> tuple[float, float, float]:
    """Return wall seconds, processor seconds with children, and load of a command."""
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, os.getloadavg()[0]


if __name__ == "__main__":
    main()
