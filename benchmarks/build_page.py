"""docs/performance.md and its chart, from what docs/performance.json has."""

from collections.abc import Callable
from dataclasses import dataclass

import jinja2
from build_results import WAYS, Results, Row, load

from rdma_images.core import atomic, paths

PAGE = paths.PROJECT / "docs" / "performance.md"
CHART = paths.PROJECT / "docs" / "performance.svg"
TEMPLATES = paths.PROJECT / "benchmarks"
PROCESSOR = ("cold, processor time", "cold, processor time of dockerd and containerd")
FLOOR = ("floor, install", "floor, compress", "floor, unpack")
BARS = ("cold", "next torch", "push", "pull")


@dataclass(frozen=True)
class Goal:
    """What was set out to be reached, and what says whether it was."""

    what: str
    least: str
    found: Callable[[Results], tuple[str, bool] | None]  # None where it is not measured


def write(results: Results) -> None:
    """Write both files."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    bars = {name: results.rows[name] for name in BARS if name in results.rows and results.rows[name].ratio}
    said: dict[str, list[str]] = {}
    for name, row in results.rows.items():
        for way, measured in row.measured.items():
            said.setdefault(f"{way}, {measured}", []).append(name)
    asked = [f"{how}: {', '.join(names)}" for how, names in said.items()]
    floor = {name: results.rows[name] for name in FLOOR if name in results.rows}
    processor, in_engine = (_median(results, name) for name in PROCESSOR)
    page = environment.get_template("performance.md.j2").render(
        results=results,
        goals=[(g, g.found(results)) for g in GOALS],
        told=told,
        number=number,
        bars=bars,
        asked=asked,
        floor=floor,
        bytes_alone=sum(row.median("ours") or 0.0 for row in floor.values()),
        cold=bars.get("cold"),
        processor=processor,
        in_engine=in_engine,
        least=processor / int(results.machine.get("cores", "1")),
    )
    atomic.write(PAGE, page + "\n")
    chart = environment.get_template("performance.svg.j2")
    longest = max((row.median(way) or 0 for row in bars.values() for way in WAYS), default=1)
    atomic.write(CHART, chart.render(bars=bars, scale=420 / longest) + "\n")


def _median(results: Results, name: str) -> float:
    """Of our way; 0 where it was not measured."""
    return (results.rows[name].median("ours") if name in results.rows else None) or 0.0


def told(row: Row, way: str) -> str:
    """A way's median and its spread, "93 s (90 to 101)"; a dash where it was not measured."""
    values = row.values.get(way)
    if not values:
        return "—"
    middle = row.median("ours" if way == "ours" else "baseline") or 0.0
    spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
    return f"{number(middle)} {row.unit}{spread}"


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _faster(name: str, least: float) -> Callable[[Results], tuple[str, bool] | None]:
    def found(results: Results) -> tuple[str, bool] | None:
        row = results.rows.get(name)
        return (f"{row.ratio:.1f} times", row.ratio >= least) if row and row.ratio else None

    return found


def _ours(name: str, most: float, text: str) -> Callable[[Results], tuple[str, bool] | None]:
    def found(results: Results) -> tuple[str, bool] | None:
        value = results.rows[name].median("ours") if name in results.rows else None
        return None if value is None else (text.format(value), value <= most)

    return found


def _share(part: tuple[str, str], whole: tuple[str, str], most: float) -> Callable[[Results], tuple[str, bool] | None]:
    """One way's row over another's."""

    def value(results: Results, name: str, way: str) -> float | None:
        row = results.rows.get(name)
        return row.median("ours" if way == "ours" else "baseline") if row else None

    def found(results: Results) -> tuple[str, bool] | None:
        above, below = value(results, *part), value(results, *whole)
        return (f"{above / below:.2f} times", above / below <= most) if above and below else None

    return found


def _beside_wheels(results: Results) -> tuple[str, bool] | None:
    rows = [results.rows.get(name) for name in ("unpacked", "wheels unpacked")]
    values = [row.median("ours") for row in rows if row]
    if len(values) < 2 or values[0] is None or values[1] is None:
        return None
    beside = values[0] - values[1]
    return f"{values[0]:.2f} GB, {beside * 1000:.0f} MB of them beside the wheels", beside <= 0.5


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
