"""The pages of docs/ that are written from facts."""

from collections.abc import Sequence

from rdma_images.facts.launchers import Launcher, Launchers

HEAD = """\
# Fields of a job, by launcher

This page is for those who write a job. The first table shows which launcher supports which field of `jobs.yaml`; the
section of your launcher says what the fields become. A launcher refuses the other fields by name.

`invoke job --field NAME=value` sets a field for one command. `mount.…`, `secret.…` and `launch.…` are the forms that a
value of `mounts`, `secrets` and `launch` can have. The page is written from `facts/launchers.yaml`.

## Fields

"""
# They share the fields of a pod, and so a section.
POD_LAUNCHERS = ("mpijob", "trainjob", "pytorchjob", "leaderworkerset")


def launchers_page(launchers: Launchers) -> str:
    """Return docs/reference/launchers.md: a job's fields, and how each launcher passes them."""
    names = list(launchers.launchers)
    rows = [f"| field | what it is | {' | '.join(names)} |", f"|---|---{'|:-:' * len(names)}|"]
    for field, meaning in launchers.fields.items():
        marks = ("✓" if field in launcher.fields else "" for launcher in launchers.launchers.values())
        rows.append(f"| `{field}` | {meaning} |{'|'.join(marks)}|")
    groups = [POD_LAUNCHERS, *((name,) for name in names if name not in POD_LAUNCHERS)]
    return HEAD + "\n".join(rows) + "\n" + "".join(_section(launchers, group) for group in groups)


def _section(launchers: Launchers, names: Sequence[str]) -> str:
    """Return the section of the launchers: a row for each field of which the table above does not say all."""
    rows = ["", f"## {', '.join(f'`{name}`' for name in names)}", "", "| field | becomes |", "|---|---|"]
    for field, meaning in launchers.fields.items():
        by_way: dict[str, list[str]] = {}
        for name in names:
            by_way.setdefault(_way(launchers.launchers[name], field), []).append(f"`{name}`")
        supporters = {way: who for way, who in by_way.items() if way and way not in meaning}
        ways = (way if len(by_way) == 1 else f"{', '.join(who)}: {way}" for way, who in supporters.items())
        if supporters:
            rows.append(f"| `{field}` | {'<br>'.join(ways)} |")
    return "\n".join(rows) + "\n"


def _way(launcher: Launcher, field: str) -> str:
    """Return how a launcher passes a field on, or its advice where it refuses it; "" for neither."""
    advice = launcher.unsupported_fields.get(field)
    return launcher.fields.get(field) or (f"refused: {advice}" if advice else "")
