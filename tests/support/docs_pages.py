"""The pages of docs/ that are written from facts."""

from rdma_images.facts.launchers import Launchers


def launchers_page(launchers: Launchers) -> str:
    """Return docs/reference/launchers.md: a job's fields, and how each launcher passes them."""
    names = [name for name, row in launchers.launchers.items() if row.fields]
    lines = [
        "# Fields of a job, by launcher",
        "",
        "This page is for those who write a job: the fields of `jobs.yaml`, and how each launcher does them. A field",
        "that a launcher does not have is refused by name. `invoke job.launchers --fields` shows the same; both come",
        "from `facts/launchers.yaml`.",
        "",
    ]
    for name, meaning in launchers.fields.items():
        rows = [
            (launcher, launchers.launchers[launcher].fields[name].how)
            for launcher in names
            if name in launchers.launchers[launcher].fields
        ]
        lines += [f"## `{name}`", "", f"{meaning[:1].upper()}{meaning[1:]}.", "", "| launcher | how |", "|---|---|"]
        lines += [f"| `{launcher}` | {how} |" for launcher, how in rows]
        lacking = {
            key: launchers.launchers[key].without for key in names if name not in launchers.launchers[key].fields
        }
        refusals = [f"`{key}`" + (f" ({reasons[name]})" if name in reasons else "") for key, reasons in lacking.items()]
        lines += ["", *([f"Refused by {', '.join(refusals)}.", ""] if refusals else [])]
    return "\n".join(lines).rstrip("\n") + "\n"
