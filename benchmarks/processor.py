"""Measure a command's processor time, which limits its speed on this many cores."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from rdma_images.engine import daemons
from rdma_images.engine.layout import layout


@dataclass
class ProcessorTime:
    """Seconds of processor time, all cores added up."""

    machine: float = 0.0  # of everything that ran, the steps inside the build too
    engine: float = 0.0  # of it dockerd and containerd


@contextmanager
def measure_processor() -> Iterator[ProcessorTime]:
    """Yield the processor time of the block, which is known at its end."""
    spent = ProcessorTime()
    machine, engine = _machine(), _engine()
    yield spent
    spent.machine = round(_machine() - machine, 1)
    spent.engine = round(_engine() - engine, 1)


def _machine() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def _engine() -> float:
    cpu_times = [psutil.Process(pid).cpu_times() for pid in daemons.running(layout()).values()]
    return float(sum(times.user + times.system for times in cpu_times))
