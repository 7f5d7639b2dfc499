"""Compare our builds with the baseline, on this machine and in the same engine.

python benchmarks/build.py [--only cold,next,pull,kept,resident,six,nothing] [--ways baseline,ours] [--runs N]
                           [--folder FOLDER] [--wheels triton,...] [--containerd PROGRAMS]

Writes performance.json, performance.md and performance.svg in docs/explanation/; what is not measured in this run
stays as it is there. Needs `pip install -e .[bench]`, root on Debian, for an engine of its own, and 60 GB free under
FOLDER. On two idle cores `cold`, `next` and `pull` take 15 minutes a run, `six` takes 40. Stand-ins replace what is
unreachable, in both ways alike. With PROGRAMS, a folder of containerd and ctr 2.2 or later, perhaps also soci-
snapshotter-grpc 0.11 or later, `pull` also measures nodes that unpack several layers at once. On a smaller disk
`--wheels` measures both ways with torch, NCCL and these large wheels alone, and the page says so.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import build_page
import build_pull
from build_lab import BuildLab, TimedRun, open_lab
from build_results import WAYS, BenchmarkRun, Results, Way, load
from registry import running_registry

from rdma_images.core import paths
from rdma_images.engine.debian import bootstrap
from rdma_images.inputs.wheels import Lock
from rdma_images.render.wheel_layers import LARGE

TARGET = "efa-pytorch"
OLD, NEW = "2.14.0", "2.14.1"  # torch and its next patch
# The same base for both fabrics, since another base may have another Python, and so another torch.
BASE = "base=ubuntu22.04"
FABRICS = (TARGET, "erdma-pytorch")
SIX = [(target, torch) for torch in (NEW, OLD, "2.13.0") for target in FABRICS]
MEASURES = ("cold", "next", "pull", "kept", "resident", "six", "nothing")
SIZES = ("unpacked", "wheels unpacked", "compressed", "engine's disk", "to push")
UNITS = dict.fromkeys(SIZES, "GB") | {"to push of the whole": "", "wheel layers made then": ""}
ROWS = {
    "cold": ("cold", "cold, of it export", "cold, of it unpacking", *build_page.PROCESSOR, *SIZES[:-1]),
    "next": ("next torch", "to push", "to push of the whole"),
    "pull": ("push", "pull"),
    "kept": ("cold with kept layers",),
    "resident": ("cold with the registry's layers", "wheel layers made then"),
}
INVOKE = [sys.executable, "-m", "invoke"]
GB = 1e9


def main() -> None:
    """Measure what is asked for, and write the page from all that is known."""
    options = parse_arguments()
    results, run = load(), describe_run(options.wheels)
    if set(options.only) - {"nothing"}:
        with open_lab(options.folder) as lab:
            prepare_inputs(lab, options.wheels)
            if set(ROWS) & set(options.only):
                measure_builds(lab, options, results, run)
            if "six" in options.only:
                measure_six_images(lab, options, results, run)
    if "nothing" in options.only:
        measure_up_to_date(options.runs, results, run)
    results.save()
    build_page.write(results)


def parse_arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(MEASURES))
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--wheels", type=lambda text: text.split(","))
    parser.add_argument("--containerd", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "rdma-images-benchmark")
    options = parser.parse_args()
    if unknown := set(options.only) - set(MEASURES):
        parser.error(f"--only knows {', '.join(MEASURES)}, not {', '.join(sorted(unknown))}")
    return options


def prepare_inputs(lab: BuildLab, wheels: list[str] | None) -> None:
    """Lock the wheels and make the bases, which both ways need, before measuring."""
    images = [(TARGET, torch, ()) for torch in (OLD, NEW)] + [(target, torch, (BASE,)) for target, torch in SIX]
    for target, torch, axes in images:
        changes = [word for pair in (f"pytorch={torch}", *axes) for word in ("--set", pair)]
        lab.run_timed("prepare", [*INVOKE, "render", "--rehearse", "--target", target, *changes])
    for file in (lab.project / "locks" / "python").glob("torch-*.json") if wheels else ():
        lock = Lock.model_validate_json(file.read_text(encoding="utf-8"))
        names = ("torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13", *(wheels or ()))
        wheels_needed = tuple(wheel for wheel in lock.wheels if wheel.size < LARGE or wheel.name in names)
        file.write_text(lock.model_copy(update={"wheels": wheels_needed}).text(), encoding="utf-8")
    for base in ("debian12", "debian13"):
        bootstrap.base_tar(base)


def measure_builds(lab: BuildLab, options: argparse.Namespace, results: Results, run: BenchmarkRun) -> None:
    """Measure cold build, next torch and pull, one way after the other, `runs` times."""
    for name in (name for measure in options.only for name in ROWS.get(measure, ())):
        results.start(name, UNITS.get(name, "s"), options.ways, run)
    for node in build_pull.nodes(options.containerd) if "pull" in options.only else ():
        results.start(node.name, "s", options.ways, run)
    for number in range(options.runs):
        ways = options.ways[::-1] if number % 2 else options.ways  # whoever is second finds what the first left warm
        for way in ways if set(ROWS) & set(options.only) else ():
            lab.empty()
            layers = measure_cold(lab, way, number, results)
            if "next" in options.only:
                measure_next(lab, way, number, layers, results)
            if "pull" in options.only:
                measure_pull(lab, way, NEW if "next" in options.only else OLD, options.containerd, results)
            if "kept" in options.only and way == "ours":
                measure_reused_layers(lab, results)
            if "resident" in options.only and way == "ours":
                measure_resident(lab, results)
            results.save()


def measure_six_images(lab: BuildLab, options: argparse.Namespace, results: Results, run: BenchmarkRun) -> None:
    """Measure the bytes of SIX in a registry, and on the engine's disk.

    Of the baseline nothing is used again, so its images are let go one by one; ours stay, as a user's would.
    """
    units = dict.fromkeys(("one image", "two fabrics", "six images", "engine's disk after six"), "GB")
    units |= {"an image with another torch": "s", "an image with the same torch": "s"}
    rows = {name: results.start(name, unit, options.ways, run) for name, unit in units.items()}
    for way in options.ways:
        lab.empty()
        layers: dict[str, int] = {}
        for number, (target, torch) in enumerate(SIX, 1):
            before = set(lab.image_names())
            timed = lab.run_timed(f"{way}-six-{number}", build_command(way, torch, target, BASE))
            (ref,) = set(lab.image_names()) - before
            layers |= lab.layer_sizes(ref)
            if number > 1:  # the first one is built in an empty engine
                same = torch == SIX[number - 2][1]
                rows[f"an image with {'the same' if same else 'another'} torch"].add(way, timed.seconds, timed.load)
            if name := {1: "one image", len(FABRICS): "two fabrics", len(SIX): "six images"}.get(number):
                rows[name].add(way, round(sum(layers.values()) / GB, 3), timed.load)
            if way == "baseline":
                lab.empty()
        if way == "ours":
            rows["engine's disk after six"].add(way, round(lab.used_bytes() / GB, 1), timed.load)
        results.save()


def measure_cold(lab: BuildLab, way: Way, number: int, results: Results) -> dict[str, int]:
    """Build with an empty engine, and return the sizes of the image's layers."""
    cold = lab.run_timed(f"{way}-cold-{number}", build_command(way, OLD))
    layers = lab.layer_sizes(built_image(lab, OLD))
    values = {
        "cold": cold.seconds,
        "cold, of it export": cold.export,
        "cold, of it unpacking": cold.unpack,
        **dict(zip(build_page.PROCESSOR, (cold.processor.machine, cold.processor.engine), strict=True)),
        "unpacked": lab.unpacked_bytes(built_image(lab, OLD)) / GB,
        "wheels unpacked": lab.unpacked_bytes(built_image(lab, OLD), "/opt/venv") / GB,
        "compressed": sum(layers.values()) / GB,
        "engine's disk": lab.used_bytes() / GB,
    }
    add_values(results, way, cold, values)
    return layers


def measure_next(lab: BuildLab, way: Way, number: int, before: dict[str, int], results: Results) -> None:
    """Build with the next torch, in an engine that has built with the one before."""
    if way == "baseline":  # nothing of it is used again, and it would fill the disk
        lab.docker("image", "rm", built_image(lab, OLD))
    run = lab.run_timed(f"{way}-next-{number}", build_command(way, NEW))
    after = lab.layer_sizes(built_image(lab, NEW))
    new = sum(size for digest, size in after.items() if digest not in before)
    share = new / sum(after.values())
    add_values(results, way, run, {"next torch": run.seconds, "to push": new / GB, "to push of the whole": share})


def measure_pull(lab: BuildLab, way: Way, torch: str, programs: Path | None, results: Results) -> None:
    """Push an image, empty the engine, and pull it; then pull as other nodes do."""
    with tempfile.TemporaryDirectory(dir=lab.folder) as folder, running_registry(Path(folder)) as host:
        ref = f"{host}/benchmark/{way}:new"
        layers = len(lab.layer_sizes(built_image(lab, torch)))
        lab.docker("tag", built_image(lab, torch), ref)
        for name in ("push", "pull"):
            start = time.monotonic()
            lab.docker(name, ref)
            results.rows[name].add(way, round(time.monotonic() - start, 2), round(os.getloadavg()[0], 1))
            lab.empty(layers=False)
        for node in build_pull.nodes(programs):
            seconds = build_pull.pull(node, programs or Path(), lab.folder / "node", ref, layers)
            results.rows[node.name].add(way, round(seconds, 2), round(os.getloadavg()[0], 1))


def measure_reused_layers(lab: BuildLab, results: Results) -> None:
    """Build in an empty engine, on a machine that has made the wheels' layers before."""
    lab.empty(layers=False)
    run = lab.run_timed("ours-kept", build_command("ours", OLD))
    results.rows["cold with kept layers"].add("ours", run.seconds, run.load)


def measure_resident(lab: BuildLab, results: Results) -> None:
    """Build in an empty engine from layers that another build sent to a registry."""
    with tempfile.TemporaryDirectory(dir=lab.folder) as folder, running_registry(Path(folder)) as host:
        build = [*build_command("ours", OLD), "--cache-layers", f"{host}/benchmark/layers"]
        lab.empty(layers=False)
        lab.run_timed("ours-sends", build)
        lab.empty()
        run = lab.run_timed("ours-resident", build)
        log = (lab.folder / "ours-resident.log").read_text(encoding="utf-8")
    results.rows["cold with the registry's layers"].add("ours", run.seconds, run.load)
    results.rows["wheel layers made then"].add("ours", sum(map(int, re.findall(r"making (\d+) layers", log))), run.load)


def measure_up_to_date(repetitions: int, results: Results, run: BenchmarkRun) -> None:
    """Measure the whole matrix with everything built, in the user's own engine."""
    row = results.start("nothing to do", "s", ["ours"], run)
    again = [*INVOKE, "build", "--all", "--rehearse"]
    subprocess.run(again, cwd=paths.PROJECT, check=True)
    for _ in range(max(repetitions, 5)):
        start = time.monotonic()
        subprocess.run(again, cwd=paths.PROJECT, check=True, capture_output=True)
        row.add("ours", round(time.monotonic() - start, 2), round(os.getloadavg()[0], 1))
    results.save()


def build_command(way: Way, torch: str, target: str = TARGET, *axes: str) -> list[str]:
    """Return what a user of either way would type."""
    chosen = [f"pytorch={torch}", *axes]
    if way == "baseline":
        return [sys.executable, "benchmarks/build_baseline.py", target, *chosen]
    changes = [word for pair in chosen for word in ("--set", pair)]
    return [*INVOKE, "build", "--rehearse", "--no-validate", "--target", target, *changes]


def built_image(lab: BuildLab, torch: str) -> str:
    """Return the one image in the engine with that torch, by name."""
    return next(name for name in lab.image_names() if f"{torch}-cu" in name)


def add_values(results: Results, way: Way, run: TimedRun, values: dict[str, float]) -> None:
    """Add the values of one run to their rows."""
    for name in values.keys() & results.rows.keys():
        results.rows[name].add(way, round(values[name], 3), run.load)


def describe_run(wheels: list[str] | None) -> BenchmarkRun:
    """Return this run's time, commit, machine and, if not all, large wheels."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=paths.PROJECT, capture_output=True, text=True, check=True
    ).stdout.strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return BenchmarkRun(
        began=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        commit=commit,
        machine=f"{os.cpu_count()} cores, {memory / GB:.0f} GB of memory, Linux {platform.release()}",
        wheels=", ".join(("torch", "NCCL", *wheels)) if wheels else "",
    )


if __name__ == "__main__":
    main()
