"""The pages of docs/ that are written from facts."""

from rdma_images.facts.launchers import Launchers

HEAD = """\
# Fields of a job, by launcher

This page is for those who write a job: the fields of `jobs.yaml`, and how each launcher passes them on. A launcher
that a list does not name refuses the field. `mount.…`, `secret.…` and `launch.…` are the forms that a value of
`mounts`, `secrets` and `launch` can have. `invoke job --field NAME=value` gives a field for once. The page is written
from `facts/launchers.yaml`.
"""


def launchers_page(launchers: Launchers) -> str:
    """Return docs/reference/launchers.md: a job's fields, and how each launcher passes them."""
    return HEAD + "".join(_section(launchers, field) for field in launchers.fields)


def _section(launchers: Launchers, field: str) -> str:
    """Return the section of one field: a line for each way, with the launchers that share it."""
    by_way: dict[str, list[str]] = {}
    for name, launcher in launchers.launchers.items():
        if field in launcher.fields:
            by_way.setdefault(launcher.fields[field], []).append(f"`{name}`")
        elif field in launcher.unsupported_fields:
            by_way.setdefault(f"refused; {launcher.unsupported_fields[field]}", []).append(f"`{name}`")
    meaning = launchers.fields[field]
    lines = ["", f"## `{field}`", "", f"{meaning[:1].upper()}{meaning[1:]}.", ""]
    return "\n".join([*lines, *(f"- {', '.join(names)}: {way}" for way, names in by_way.items())]) + "\n"
