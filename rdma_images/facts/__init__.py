"""What is known about versions, as typed tables; the data is in facts/, a YAML file a component."""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError, near
from rdma_images.facts import aws_ofi_nccl, table
from rdma_images.facts.aws_ofi_nccl import Plugin
from rdma_images.facts.bases import Bases
from rdma_images.facts.cuda import Cuda
from rdma_images.facts.efa_installer import Efa
from rdma_images.facts.erdma import Erdma
from rdma_images.facts.faults import Faults
from rdma_images.facts.gpus import Gpus
from rdma_images.facts.instances import Instances
from rdma_images.facts.nccl import Nccl
from rdma_images.facts.nccl_tests import NcclTests
from rdma_images.facts.origin import FactsFile
from rdma_images.facts.running import Running
from rdma_images.facts.torch import Torch

if TYPE_CHECKING:
    from rdma_images.facts.launchers import Launchers
    from rdma_images.facts.troubleshooting import Troubleshooting


class Facts:
    """Every table, each read when it is first used; see `load`.

    A table that cannot be read raises RefusedError with file and line. Compared by identity, so that what is looked up
    once can be remembered.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """The tables of `folder`; without one, the project's with the user's own over them, see `table.read`."""
        self._folder = folder

    @cached_property
    def bases(self) -> Bases:
        """Base images and distributions."""
        return table.read("bases.yaml", Bases, self._folder)

    @cached_property
    def torch(self) -> Torch:
        """torch's releases and what their wheels pin."""
        return table.read("torch.yaml", Torch, self._folder)

    @cached_property
    def cuda(self) -> Cuda:
        """CUDA's majors, their drivers and compilers."""
        return table.read("cuda.yaml", Cuda, self._folder)

    @cached_property
    def nccl(self) -> Nccl:
        """NCCL's releases and plugin interfaces."""
        return table.read("nccl.yaml", Nccl, self._folder)

    @cached_property
    def efa(self) -> Efa:
        """The EFA installer's releases and what they bring."""
        return table.read("efa-installer.yaml", Efa, self._folder)

    @cached_property
    def plugin(self) -> Plugin:
        """The NCCL plugin's releases and plugin interfaces."""
        return table.read(f"{aws_ofi_nccl.NAME}.yaml", Plugin, self._folder)

    @cached_property
    def faults(self) -> Faults:
        """What does not work in some versions of a component."""
        return table.read("faults.yaml", Faults, self._folder)

    @cached_property
    def erdma(self) -> Erdma:
        """Alibaba's eRDMA packages, and the NCCL versions that work with them."""
        return table.read("erdma.yaml", Erdma, self._folder)

    @cached_property
    def nccl_tests(self) -> NcclTests:
        """The releases of nccl-tests."""
        return table.read("nccl-tests.yaml", NcclTests, self._folder)

    @cached_property
    def running(self) -> Running:
        """What images need of their hosts and jobs."""
        return table.read("running.yaml", Running, self._folder)

    @cached_property
    def instances(self) -> Instances:
        """Instance types, their GPUs and network cards."""
        return table.read("instances.yaml", Instances, self._folder)

    @cached_property
    def gpus(self) -> Gpus:
        """GPUs and their compute capabilities."""
        return table.read("gpus.yaml", Gpus, self._folder)

    @cached_property
    def launchers(self) -> "Launchers":
        """The launchers of jobs."""
        from rdma_images.facts.launchers import Launchers  # here, because only the tasks of jobs need it

        return table.read("launchers.yaml", Launchers, self._folder)

    @cached_property
    def troubleshooting(self) -> "Troubleshooting":
        """What goes wrong with jobs."""
        from rdma_images.facts.troubleshooting import Troubleshooting  # as above

        return table.read("troubleshooting.yaml", Troubleshooting, self._folder)

    def check(self, but: Collection[str] = ()) -> None:
        """Read every table `but` those. Raises RefusedError with file and line for what does not hold together."""
        for name, one in vars(Facts).items():
            if isinstance(one, cached_property) and name not in but:
                getattr(self, name)


def load(folder: Path | None = None) -> Facts:
    """The tables of `folder`, or of the project.

    Raises RefusedError with file and line for what cannot be read, and where two tables contradict each other.
    """
    known = Facts(folder)
    own = folder is None and len(list(paths.places("facts"))) > 1
    # Now, and not in the middle of a task. Only jobs use these two: read later, unless a user may have written some.
    known.check(() if own else ("launchers", "troubleshooting"))
    if problems := list(_contradictions(known)):
        raise RefusedError("\n".join(problems))
    return known


def _contradictions(known: Facts) -> Iterator[str]:
    """Versions that a row of one file names, and another file has no row for: "file:line: what"."""
    tables: tuple[tuple[FactsFile, str, Mapping[str, str | None], Nccl | Plugin], ...] = (
        (known.torch, "nccl", {v: row.nccl for v, row in known.torch.releases.items()}, known.nccl),
        (known.efa, "plugin", {v: row.plugin for v, row in known.efa.releases.items()}, known.plugin),
    )
    for file, key, named, other_file in tables:
        for version, other in named.items():
            if other is not None and other not in other_file.releases:
                where = file.where("releases", version, key)
                there = other_file.where("releases")
                yield f"{where}: {key} {other!r} has no row in {there}: {near(other, other_file.releases)}"
