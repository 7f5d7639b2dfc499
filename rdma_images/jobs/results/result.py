"""The result of a job: what its logs say. Every value that was read names its file and line."""

from dataclasses import dataclass, field
from typing import Literal

from rdma_images.core.image import Fabric

RunName = Literal["fabric", "tcp"]  # the job, and the same job over TCP to compare with


@dataclass(frozen=True)
class ValueWithSource:
    """A value and where it was read: "file:line", the file relative to the folder of the run."""

    value: str
    where: str


@dataclass(frozen=True)
class Bandwidth:
    """One half of a row of nccl-tests; a value that the row does not have is None."""

    time: float | None  # µs
    algbw: float | None  # GB/s
    busbw: float | None  # GB/s
    wrong: int | None  # elements; None where nothing was verified


@dataclass(frozen=True)
class Measurement:
    """One row of nccl-tests: a size of a collective."""

    collective: str  # "all_reduce"; empty where the log does not say
    size: int  # bytes
    type: str  # "float"
    redop: str  # "sum", "none"
    root: str
    out_of_place: Bandwidth | None
    in_place: Bandwidth | None
    where: str

    @property
    def busbw(self) -> float | None:
        """Return the bus bandwidth in GB/s, out of place if it has that, as published tables do."""
        timing = self.out_of_place or self.in_place
        return timing.busbw if timing else None

    @property
    def wrong(self) -> int | None:
        """Return the wrong elements, both halves together; None if not verified."""
        counts = [timing.wrong for timing in (self.out_of_place, self.in_place) if timing and timing.wrong is not None]
        return sum(counts) if counts else None


@dataclass(frozen=True)
class ResultProblem:
    """A fault or a doubt of a run, its fix, and the lines that show it ("file:line")."""

    sentence: str
    fix: str = ""
    where: tuple[str, ...] = ()
    severity: Literal["error", "unknown"] = "error"  # unknown: the logs do not say what they should


@dataclass(frozen=True)
class NodeResult:
    """The values that the logs have of one node."""

    name: str
    ranks: tuple[int, ...]  # those whose lines are in the logs
    expected: int | None  # adapters of its instance type; None where that is not known
    # How many the network found in the container; the smallest that a process says.
    adapters: ValueWithSource | None = None
    devices: tuple[str, ...] = ()  # their names, of libibverbs
    used: int | None = None  # devices that channels go over; NCCL counts adapters that the plugin joins as one
    provider: ValueWithSource | None = None  # of libfabric
    plugin: ValueWithSource | None = None  # version of aws-ofi-nccl
    libfabric: ValueWithSource | None = None  # version
    nccl: ValueWithSource | None = None  # version
    gpudirect: ValueWithSource | None = None  # "yes", "no", "3 of 8 channels"


@dataclass(frozen=True)
class RunResult:
    """The values that the logs have of one run of the job."""

    name: RunName
    network: str  # as `Verdict.network`
    good: bool | None  # whether the network is the expected one; None where the logs do not say
    sentence: str
    channels: dict[str, int]  # "NET/Libfabric/GDRDMA" -> how many
    ranks: int  # with a line in the logs
    nodes: tuple[NodeResult, ...]
    measurements: tuple[Measurement, ...]
    problems: tuple[ResultProblem, ...] = ()
    evidence: dict[str, tuple[str, ...]] = field(default_factory=dict)  # a cause or note -> the lines that say it

    @property
    def largest(self) -> Measurement | None:
        """Return the last row of the largest size; None where there is no row."""
        return max(reversed(self.measurements), key=lambda measurement: measurement.size, default=None)


@dataclass(frozen=True)
class Result:
    """The result of a job by its logs, and what it was compared with."""

    job: str  # its name; empty where there is no job.json
    digest: str  # of the image, "sha256:…"; empty where it is not known
    instance: str
    nodes: int | None  # asked for
    fabric: Fabric | None  # that it should use
    runs: tuple[RunResult, ...]
    line_rate: float | None  # GB/s that all network cards of a node carry in one direction
    sentence: str
    exit_code: int  # as `verdict` ends: 0 good, 1 not good, 3 where the logs do not say
    time: str  # when the logs were read, ISO 8601, UTC
    schema: Literal[1] = 1

    @property
    def share(self) -> float | None:
        """Return the bus bandwidth of the largest size by the line rate; None where one of both is not known."""
        row = self.runs[0].largest
        return row.busbw / self.line_rate if row and row.busbw and self.line_rate else None

    def run(self, name: RunName) -> RunResult | None:
        """Return the run of this name, or None."""
        return next((run for run in self.runs if run.name == name), None)
