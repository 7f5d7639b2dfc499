"""Jobs and launchers to look at."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdma_images.core.paths import COMMAND, display_path
from rdma_images.facts.instances import INTERFACE_RESOURCES
from rdma_images.facts.launchers import Launcher, Launchers, Parameter
from rdma_images.inputs import target_options
from rdma_images.inputs.project import Project
from rdma_images.jobs.write import job_image
from rdma_images.jobs.write.job import Job, JobValue
from rdma_images.jobs.write.job_folder import JOB_FILE

# What a person looks at before a job is submitted; job.json has all the rest.
SHOWN = ("nodes", "gpus", "replicas", *INTERFACE_RESOURCES.values(), "memory", "code", "restarts", "time")


def job_table(job: Job, folder: Path) -> RenderableType:
    """Return a job for people: its image, what it asks for, and the folder of its files."""
    shown = [value for value in job.values if _setting(value) in SHOWN]
    # A table would cut its digest off.
    image = Text(f"image  {job.image}\n", no_wrap=True, overflow="ignore")
    # job.run does not follow a server.
    path = display_path(folder)
    following = f"{path}/README.md" if "port" in job.parameters else f"{COMMAND} job.run {path}"
    return Group(image, cluster_table(shown, folder), Text(f"next: {following}"))


def _setting(value: JobValue) -> str:
    """Return the name of a value, without the role of a server before it."""
    _, _, name = value.name.partition(".")
    return name if name in SHOWN else value.name


def cluster_table(values: Sequence[JobValue], folder: Path) -> RenderableType:
    """Return decisions for people: each value, why, and the folder of the files."""
    table = Table("value", "", "why", box=None, pad_edge=False, header_style="bold")
    for value in values:
        table.add_row(value.name, value.value, value.why)
    files = ", ".join(sorted(path.name for path in folder.iterdir()))
    return Group(table, Text.assemble("\n", (display_path(folder), "bold"), f"  {files}"))


def job_json(folder: Path) -> str:
    """Return the job.json of a job or cluster."""
    return (folder / JOB_FILE).read_text(encoding="utf-8").rstrip()


def launchers_json(launchers: Launchers) -> str:
    """Return all launchers and makers of clusters, as the facts have them."""
    return launchers.model_dump_json(indent=2, include={"launchers", "clusters"})


def launcher_table(project: Project) -> RenderableType:
    """Return the launchers for people, each with its targets and parameters; at the end, those of several launchers."""
    launchers = project.facts.launchers
    images = target_options.chosen_plan(project, None, False, None).images
    usable = {name: _usable_parameters(row, launchers) for name, row in launchers.launchers.items()}
    counts = Counter(parameter for parameters in usable.values() for parameter in parameters)
    parts: list[RenderableType] = []
    for name, row in launchers.launchers.items():
        targets = [
            image.target
            for image in images
            if image.fabric in row.fabrics and set(job_image.rank_starters(image)) & set(row.rank_starters)
        ]
        summary = f"  {row.summary}{f' ({row.version})' if row.version else ''}"
        text = Text.assemble((name, "bold"), f"{summary}\n  targets: {', '.join(targets) or 'none'}")
        shared = [parameter for parameter in usable[name] if counts[parameter] > 1]
        text.append(f"\n  parameters below: {', '.join(word for word, _ in shared)}" if shared else "")
        own = [parameter for parameter in usable[name] if counts[parameter] == 1]
        parts += [text, *([_parameter_table(own)] if own else []), Text()]
    for name, maker in launchers.clusters.items():
        parts.append(Text.assemble((name, "bold"), f"  {maker.summary}\n  for {COMMAND} cluster"))
        parts += [_parameter_table(maker.parameters.items()), Text()]
    parts += [
        Text("parameters of several launchers", "bold"),
        _parameter_table(row for row in counts if counts[row] > 1),
    ]
    return Group(*parts)


def _usable_parameters(launcher: Launcher, launchers: Launchers) -> list[tuple[str, Parameter]]:
    """Return the parameters that mean something to a launcher, on one of its fabrics."""
    return [
        (name, parameter)
        for name, parameter in {**launcher.parameters, **launchers.parameters}.items()
        if any(parameter.applies(fabric, 2, launcher.kind) for fabric in launcher.fabrics)
    ]


def _parameter_table(parameters: Iterable[tuple[str, Parameter]]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, parameter in parameters:
        table.add_row("  --param", name, parameter.when, parameter.description)
    return table
