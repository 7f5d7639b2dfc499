"""Measure what compiling nccl-tests costs, by file and GPU architecture.

    python benchmarks/compile_nccl_tests.py nccl-tests-2.19.6.tar.gz sm_80 sm_90 --backends PROXY EFA_GDA

The compiler and NCCL are the wheels that the images are compiled with. A file is compiled for one architecture at a
time, device code alone (--cubin), and once as a whole; what the whole costs beyond its device code is the host's part,
paid once however many architectures there are. Processor time is hardly disturbed by what else a machine does; wall
time is, and is not reported. MPI is left out: only the host's part includes its headers.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rdma_images import facts
from rdma_images.components.cuda import toolkit_requirements

# As the Makefiles of nccl-tests 2.18.3 and 2.19.6 call nvcc for CUDA 13.
FLAGS = ("-std=c++17", "--extended-lambda", "-DNCCL_OS_LINUX", "-O3", "-g", "-I../os", "-I../verifiable")


@dataclass(frozen=True)
class Cost:
    """What one compilation took."""

    file: str
    target: str  # "sm_90", or "whole" for one architecture with the host's part
    seconds: float  # of processor time, user and system
    memory: int  # MiB of its largest process


def compile_timed(command: Sequence[str | Path], folder: Path, file: str, target: str) -> Cost:
    """Run one compilation in `folder`. Raises CalledProcessError where it fails."""
    started = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise subprocess.CalledProcessError(started.returncode, [str(word) for word in command])
    cost = Cost(file, target, round(used.ru_utime + used.ru_stime, 1), used.ru_maxrss // 1024)
    print(json.dumps(asdict(cost)), file=sys.stderr, flush=True)
    return cost


def install_compiler(folder: Path, cuda: str, nccl: str) -> tuple[Path, Path]:
    """Install CUDA's compiler and NCCL under `folder`; return both folders."""
    wheels = [*toolkit_requirements(cuda, facts.load()), f"nvidia-nccl-cu{cuda.partition('.')[0]}=={nccl}"]
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", folder, *wheels], check=True)
    return next((folder / "nvidia").glob("cu[0-9]*")), folder / "nvidia/nccl"


def measure_costs(options: argparse.Namespace) -> list[Cost]:
    """Return every file of the tarball for every architecture, the dearest files first."""
    cuda, nccl = install_compiler(options.folder / "wheels", options.cuda, options.nccl)
    with tarfile.open(options.tarball) as tarball:
        tarball.extractall(options.folder / "sources", filter="data")
    (source,) = (options.folder / "sources").iterdir()
    files = [source / "verifiable/verifiable.cu", *sorted((source / "src").glob("*.cu"))]
    first = ("alltoall.cu", "verifiable.cu", "all_reduce.cu")
    files = [file for file in files if file.name in options.files or not options.files]
    files.sort(key=lambda file: first.index(file.name) if file.name in first else len(first))
    disabled = {"PROXY", "GDAKI", "GPI", "EFA_GDA"} - set(options.backends)
    flags = [*FLAGS, f"-I{nccl}/include", *(f"-DNCCL_GIN_{name}_ENABLE=0" for name in sorted(disabled))]

    def cost(file: Path, target: str) -> Cost:
        arch = options.architectures[0] if target == "whole" else target
        mode = "-c" if target == "whole" else "--cubin"
        output = options.folder / f"{file.stem}.{target}"
        return compile_timed(
            [cuda / "bin/nvcc", *flags, f"-arch={arch}", mode, file, "-o", output], source / "src", file.name, target
        )

    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [(file, target) for file in files for target in (*options.architectures, "whole")]
        return list(pool.map(lambda job: cost(*job), jobs))


def cost_table(cost_rows: Sequence[Cost], architectures: Sequence[str]) -> str:
    """Return processor seconds as Markdown: a row a file, a column an architecture."""
    by_key = {(cost.file, cost.target): cost for cost in cost_rows}
    columns = {
        name: {file: by_key[file, name].seconds for file, target in by_key if target == name} for name in architectures
    }
    whole = {file: cost.seconds for (file, target), cost in by_key.items() if target == "whole"}
    columns["host"] = {file: whole[file] - columns[architectures[0]][file] for file in whole}
    rows = [f"| {file} | " + " | ".join(f"{column[file]:.0f}" for column in columns.values()) + " |" for file in whole]
    sums = " | ".join(f"{sum(column.values()):.0f}" for column in columns.values())
    memory = max(cost.memory for cost in cost_rows)
    head = f"| seconds of processor time | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}"
    return "\n".join([head, *rows, f"| all | {sums} |", "", f"largest process: {memory} MiB"])


def main() -> None:
    """Print what each compilation cost, as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tarball", type=Path)
    parser.add_argument("architectures", nargs="+", help="sm_90 …")
    parser.add_argument("--backends", nargs="+", default=["PROXY", "GDAKI", "GPI", "EFA_GDA"], help="of NCCL's GIN")
    parser.add_argument("--files", nargs="+", default=[], help="alltoall.cu …; without it, all")
    parser.add_argument("--cuda", default="13.0")
    parser.add_argument("--nccl", default="2.31.2")
    parser.add_argument("--jobs", type=int, default=2, help="compilations at once")
    parser.add_argument("--folder", type=Path, default=Path("build/benchmarks/nccl-tests"))
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    print(cost_table(measure_costs(options), options.architectures))


if __name__ == "__main__":
    main()
