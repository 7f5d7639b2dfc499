"""Rules on the hosts that mpirun, horovodrun and DeepSpeed are given, on the command line or in a file."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.jobs.check.foreign_job import JobPart, Launch
from rdma_images.jobs.check.rules.ranks import number
from rdma_images.jobs.check.rules.rule import CheckContext, RuleFinding, rule

HOSTS = re.compile(r"[\w.-]+(?::\d+)?(?:,[\w.-]+(?::\d+)?)*")
HOST_SLOTS = re.compile(r"(?P<host>[\w.@-]+)(?:\s+slots\s*=\s*(?P<slots>\d+)|:(?P<number>\d+))?.*")


@rule("ranks.hosts", "error", "open-mpi/ompi, mpirun(1), --host; horovod/horovod, runner/util/hosts.py")
def hosts_and_slots(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report ranks of mpirun or horovodrun for which the named hosts have no slots."""
    for launch in part.start.launches:
        if launch.program not in ("mpirun", "horovodrun"):
            continue
        if stray := launch.options.get("stray_host"):
            yield (
                stray,
                f"{stray.text} is taken for the program: a blank ends the list of hosts",
                "separate hosts by commas alone",
            )
            continue
        hosts = next((launch.options[name] for name in ("H", "host", "hosts") if name in launch.options), None)
        ranks = number(launch.options, "np", "num_proc")
        if not (hosts and ranks and HOSTS.fullmatch(hosts.text)) or "oversubscribe" in str(launch.options).lower():
            continue
        if part.kind == "slurm" and ":" not in hosts.text:
            continue  # a host has the slots of the allocation
        slots = sum(int(host.partition(":")[2] or 1) for host in hosts.text.split(","))
        if ranks > slots:
            problem = f"{ranks} ranks, and the hosts have {slots} slot{'s' if slots > 1 else ''}"
            yield hosts, problem, "write the slots behind each host, as node1:8,node2:8"


@rule(
    "ranks.hostfile",
    "error",
    "open-mpi/ompi, mpirun(1), --hostfile; deepspeedai/DeepSpeed, deepspeed/launcher/runner.py, parse_resource_filter",
)
def hosts_of_file(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report what a launcher asks of the hosts in a file beside the script, and they do not have."""
    for launch in part.start.launches:
        word = next((launch.options[name] for name in ("hostfile", "machinefile") if name in launch.options), None)
        slots = _file_slots(part, word.text) if word else {}
        if not word or not slots or "oversubscribe" in str(launch.options).lower():
            continue
        counts = [count for count in slots.values() if count]
        ranks = number(launch.options, "np", "num_proc")
        if launch.program in ("mpirun", "horovodrun") and ranks and len(counts) == len(slots) and ranks > sum(counts):
            problem = f"{ranks} ranks, and the hosts in {word.text} have {sum(counts)} slots"
            yield word, problem, "write the GPUs of each host as its slots"
        if launch.program == "deepspeed":
            yield from _unfit_filters(launch, slots, word.text)


def _unfit_filters(launch: Launch, slots: Mapping[str, int | None], name: str) -> Iterator[RuleFinding]:
    """Yield the hosts and slots of DeepSpeed's filters that its hostfile does not have."""
    for option in ("include", "exclude"):
        word = launch.options.get(option)
        for entry in word.text.split("@") if word and "$" not in word.text else ():
            host, _, numbers = entry.strip().partition(":")
            count = slots.get(host)
            beyond = [slot for slot in numbers.split(",") if slot.isdecimal() and count and int(slot) >= count]
            if word and host not in slots:
                yield word, f"--{option} names {host}, which is not in {name}: DeepSpeed refuses it", "add it there"
            elif word and beyond:
                problem = f"--{option} names slot {beyond[0]} of {host}, which has {count} in {name}"
                yield word, f"{problem}: they count from 0, and DeepSpeed refuses it", "raise slots= to the node's GPUs"
    nodes = launch.options.get("num_nodes")
    if nodes and nodes.number and nodes.number > len(slots):
        yield nodes, f"{nodes.number} nodes, and {name} has {len(slots)}", "add the other hosts"


def _file_slots(part: JobPart, name: str) -> dict[str, int | None]:
    """Return the slots of the hosts in a file beside a part's file, None for one without; none without the file."""
    path = Path(part.file).parent / name
    try:
        lines = [line.split("#")[0].strip() for line in files.read_text(path).splitlines()] if path.is_file() else []
    except RdmaImagesError:
        return {}
    matches = [HOST_SLOTS.fullmatch(line) for line in lines if line]
    slots = {match["host"]: match["slots"] or match["number"] for match in matches if match}
    return {host: int(count) if count else None for host, count in slots.items()} if all(matches) else {}
