"""Write docs/explanation/performance.md and its chart from performance.json."""

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jinja2
from build_results import WAYS, BenchmarkRun, MixedRunsError, ResultRow, Results, Way, load, ratio

from rdma_images.core import atomic, paths

PAGE = paths.PROJECT / "docs" / "explanation" / "performance.md"
CHART = paths.PROJECT / "docs" / "explanation" / "performance.svg"
TEMPLATES = paths.PROJECT / "benchmarks"
PROCESSOR = ("cold, processor time", "cold, processor time of dockerd and containerd")
BARS = ("cold", "next torch", "push", "pull")


@dataclass(frozen=True)
class Goal:
    """A goal of performance, and how to tell whether it is reached."""

    title: str
    target: str
    measure: Callable[[Results], tuple[str, bool] | None]  # None where it is not measured


def write(results: Results) -> None:
    """Write the page and its chart."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    bars = {name: results.rows[name] for name in BARS if name in results.rows and _comparable(results.rows[name])}
    runs = sorted({run for row in results.rows.values() for run in row.runs.values()}, key=str)
    letters = dict(zip(runs, string.ascii_uppercase, strict=False))
    page = environment.get_template("performance.md.j2").render(
        goals=[(goal, goal_verdict(goal, results, letters)) for goal in GOALS],
        runs=letters,
    )
    atomic.write(PAGE, page + "\n")
    chart = environment.get_template("performance.svg.j2")
    figures = [row.figure(way) for row in bars.values() for way in WAYS]
    longest = max((figure.value for figure in figures if figure), default=1)
    atomic.write(CHART, chart.render(bars=bars, scale=420 / longest) + "\n")


def goal_verdict(goal: Goal, results: Results, letters: Mapping[BenchmarkRun, str]) -> tuple[str, str]:
    """Return what was measured of a goal, and whether it was reached, by one run."""
    try:
        verdict = goal.measure(results)
    except MixedRunsError as error:
        return f"of two runs ({', '.join(sorted(letters[run] for run in error.runs))}), not compared", ""
    return (verdict[0], "yes" if verdict[1] else "**no**") if verdict else ("not measured", "")


def _comparable(row: ResultRow) -> bool:
    """Return whether both ways were measured in one run."""
    try:
        return row.ratio is not None
    except MixedRunsError:
        return False


def _faster(name: str, min_times: float) -> Callable[[Results], tuple[str, bool] | None]:
    def compare(results: Results) -> tuple[str, bool] | None:
        times = ratio(results.figure(name, "baseline"), results.figure(name))
        return (f"{times:.1f} times", times >= min_times) if times else None

    return compare


def _ours(name: str, most: float, text: str) -> Callable[[Results], tuple[str, bool] | None]:
    def compare(results: Results) -> tuple[str, bool] | None:
        figure = results.figure(name)
        return (text.format(figure.value), figure.value <= most) if figure else None

    return compare


def _share(part: tuple[str, Way], whole: tuple[str, Way], most: float) -> Callable[[Results], tuple[str, bool] | None]:
    """Return one way's row over another's."""

    def compare(results: Results) -> tuple[str, bool] | None:
        share = ratio(results.figure(*part), results.figure(*whole))
        return (f"{share:.2f} times", share <= most) if share else None

    return compare


def _beside_wheels(results: Results) -> tuple[str, bool] | None:
    unpacked, wheels = results.figure("unpacked"), results.figure("wheels unpacked")
    if not unpacked or not wheels:
        return None
    beside = unpacked.value - wheels.value
    return f"{unpacked.value:.2f} GB, {beside * 1000:.0f} MB of them beside the wheels", beside <= 0.5


GOALS = (
    Goal("Cold build of `efa-pytorch`, until the image can run", "4 times faster", _faster("cold", 4)),
    Goal(
        "The same with the wheels' layers made before, in an empty engine",
        "at most 0.125 times the baseline's",
        _share(("cold with kept layers", "ours"), ("cold", "baseline"), 0.125),
    ),
    Goal(
        "The same without any layer on the machine, from a registry's",
        "at most 0.125 times the baseline's",
        _share(("cold with the registry's layers", "ours"), ("cold", "baseline"), 0.125),
    ),
    Goal("Processor time of the cold build", "under 100 s", _ours(PROCESSOR[0], 100, "{:.0f} s")),
    Goal("The next torch patch, warm", "12 times faster", _faster("next torch", 12)),
    Goal(
        "An image with the same torch and another fabric",
        "under 6 s",
        _ours("an image with the same torch", 6, "{:.1f} s"),
    ),
    Goal(
        "Bytes of it to push",
        "at most 35% of the image",
        _ours("to push of the whole", 0.35, "{:.0%}"),
    ),
    Goal(
        "Nothing to do, the whole default matrix",
        "under 0.7 s",
        _ours("nothing to do", 0.7, "{:.2f} s"),
    ),
    Goal(
        "Six images (2 fabrics, 3 torch versions) in a registry",
        "at most half of the baseline's",
        _share(("six images", "ours"), ("six images", "baseline"), 0.5),
    ),
    Goal(
        "Two fabrics with one torch in a registry",
        "at most 1.1 times one image",
        _share(("two fabrics", "ours"), ("one image", "ours"), 1.1),
    ),
    Goal("Pull from a registry on this machine into an empty engine", "2.5 times faster", _faster("pull", 2.5)),
    Goal(
        "The same by containerd 2.2 or later that unpacks 4 layers at once",
        "2.5 times faster",
        _faster("pull, containerd in parallel", 2.5),
    ),
    Goal(
        "Engine's disk after building the six",
        "under 30 GB",
        _ours("engine's disk after six", 30, "{:.1f} GB"),
    ),
    Goal("Size of `efa-pytorch`, unpacked", "at most the wheels + 500 MB", _beside_wheels),
)

if __name__ == "__main__":
    write(load())
