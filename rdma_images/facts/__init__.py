"""Facts about versions as typed tables, read from facts/, where each component has a YAML file."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.facts import facts_file
from rdma_images.facts.bases import Bases
from rdma_images.facts.fabric_software import Efa, Erdma, Plugin
from rdma_images.facts.facts_file import Fact, FactsFile, Table
from rdma_images.facts.faults import Faults
from rdma_images.facts.gpu_software import Cuda, Nccl, NcclTests, Torch
from rdma_images.facts.instances import Gpus, Instances
from rdma_images.facts.running import RunRequirements

if TYPE_CHECKING:
    from rdma_images.facts.launchers import Launchers


def _table(model: type[Table]) -> cached_property[Table]:
    """Return an attribute of `Facts` that reads the table of `model` when it is first used."""
    return cached_property(lambda facts: facts.table(model))


class Facts:
    """Every table, each read when it is first used; see `load`.

    A step that needs one table and gets no `Facts` reads it with `facts_file.read`: it is the same one. A table that
    cannot be read raises RefusedError with file and line. Compared by identity, so that what is looked up once can be
    remembered.
    """

    bases = _table(Bases)
    torch = _table(Torch)
    cuda = _table(Cuda)
    nccl = _table(Nccl)
    efa_installer = _table(Efa)
    aws_ofi_nccl = _table(Plugin)
    faults = _table(Faults)
    erdma = _table(Erdma)
    nccl_tests = _table(NcclTests)
    running = _table(RunRequirements)
    instances = _table(Instances)
    gpus = _table(Gpus)

    def __init__(self, folder: Path | None = None) -> None:
        """Prepare the tables of `folder`; without it, of the project and the user."""
        self._folder = folder

    def table(self, model: type[Table], file: str = "") -> Table:
        """Return the table of `model`, for what has no attribute here: a component's own facts."""
        return facts_file.read(model, self._folder, file)

    @property
    def launchers(self) -> "Launchers":
        """Return the launchers of jobs."""
        from rdma_images.facts.launchers import Launchers  # here, because only the tasks of jobs need it

        return self.table(Launchers)


def load(folder: Path | None = None) -> Facts:
    """Return the tables of `folder`, or of the project.

    Raises RefusedError with file and line for what cannot be read, and where two tables contradict each other.
    """
    facts = Facts(folder)
    for name, attribute in vars(Facts).items():
        if isinstance(attribute, cached_property):
            getattr(facts, name)  # read now, and not in the middle of a task
    if problems := list(_contradictions(facts)):
        raise RefusedError("\n".join(problems))
    return facts


def _contradictions(facts: Facts) -> Iterator[str]:
    """Yield an error for each name in one file without a row in another, as "file:line: what"."""
    yield from _dangling(facts.torch, "releases", facts.torch.releases, "nccl", facts.nccl, "releases")
    yield from _dangling(
        facts.efa_installer, "releases", facts.efa_installer.releases, "plugin", facts.aws_ofi_nccl, "releases"
    )
    yield from _dangling(facts.instances, "types", facts.instances.types, "gpu", facts.gpus, "gpus")
    yield from _dangling(facts.bases, "bases", facts.bases.bases, "stand_in", facts.bases, "bases")


def _dangling(
    file: FactsFile, rows: str, rows_by_name: Mapping[str, Fact], key: str, other_file: FactsFile, other_rows: str
) -> Iterator[str]:
    """Yield an error for each value of `key` in `file` that is no row of `other_file`."""
    known_rows = getattr(other_file, other_rows)
    first_rows = {getattr(row, key): name for name, row in reversed(list(rows_by_name.items()))}
    for value, name in first_rows.items():
        if value is not None and value not in known_rows:
            fault = f"{file.where(rows, name, key)}: {key} {value!r} has no row in {other_file.where(other_rows)}"
            yield f"{fault}\n{suggestion(value, known_rows)}"
