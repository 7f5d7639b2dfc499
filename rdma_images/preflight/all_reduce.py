"""Run an all-reduce over all GPUs of a job before its command: does NCCL start, over which network, and how fast?"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rdma_images.preflight import all_reduce_rank
from rdma_images.preflight.devices import Device
from rdma_images.preflight.system import Finding

if TYPE_CHECKING:
    from rdma_images.nccl_logs.log_patterns import LogPatterns
    from rdma_images.preflight.job_nodes import JobNode

LIMIT_SECONDS = 90.0  # for a few nodes; a second more for each node
GRACE_SECONDS = 5.0  # for the others, after one has failed
MESSAGE_BYTES = 256 << 20
KILLED = {-9: "signal 9 ended it: the limit of the container's memory may be reached"}  # by poll()
QUOTED_LINES = 40  # of NCCL's log, after its first warning


class Ranks:
    """This node's processes of the all-reduce, one for each GPU, see all_reduce_rank; the `with` block ends them."""

    def __init__(
        self, place: tuple[int, int], gpus: int, nccl_path: str, folder: str, environment: Mapping[str, str]
    ) -> None:
        """Take the number of nodes and this node's, its GPUs, the job's NCCL, a folder to write to, and variables."""
        nodes, node = place
        self.folder, self.total = folder, nodes * gpus
        self.processes = {
            node * gpus + gpu: self.start_process(node * gpus + gpu, gpu, nccl_path, environment) for gpu in range(gpus)
        }

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            process.stdin.close()

    def start_process(self, rank: int, gpu: int, nccl_path: str, environment: Mapping[str, str]) -> Any:
        """Start the process of a GPU and return it."""
        variables = dict(environment, NCCL_DEBUG="INFO", NCCL_DEBUG_FILE="%s/nccl.%d" % (self.folder, rank))
        variables.pop("NCCL_DEBUG_SUBSYS", None)
        source = getattr(all_reduce_rank, "SOURCE", "")  # where `validate` brings no files
        program = ("-c", source) if source else (os.path.abspath(all_reduce_rank.__file__),)
        words = [sys.executable, "-E", "-B", *program, nccl_path, rank, self.total, gpu, MESSAGE_BYTES]
        answer, errors = ("%s/%s.%d" % (self.folder, kind, rank) for kind in ("answer", "errors"))
        with open(answer, "wb") as out, open(errors, "wb") as err:
            return subprocess.Popen(list(map(str, words)), env=variables, stdin=-1, stdout=out, stderr=err)

    def make_id(self) -> str:
        """Return the communicator's id, which rank 0 makes; "" where it fails."""
        self.wait([0], 1, LIMIT_SECONDS)
        line = (self.lines("answer", 0) or [""])[0]
        return "" if line.startswith("{") else line

    def run(self, unique_id: str, limit: float) -> dict[int, Any]:
        """Start NCCL with this id. Return each rank's answer; that of one that has ended or is late is an `error`."""
        for process in self.processes.values():
            with contextlib.suppress(OSError):  # it has ended: its answer is missing
                process.stdin.write(unique_id.encode() + b"\n")
                process.stdin.flush()
        ended = self.wait(list(self.processes), 2, limit)
        answers: dict[int, Any] = {}
        for rank in self.processes:
            last = (self.lines("answer", rank) or [""])[-1]
            errors = self.lines("errors", rank) or [KILLED.get(self.processes[rank].poll(), "it ended without a word")]
            missing = errors[-1] if rank in ended else "not done after %d s" % limit
            answers[rank] = json.loads(last) if last.startswith("{") else {"error": missing}
        return answers

    def wait(self, ranks: list[int], lines: int, limit: float) -> set[int]:
        """Wait until each rank has written so many lines, or has ended. Return those that have ended."""
        deadline = time.monotonic() + limit
        ended: set[int] = set()
        waiting = set(ranks)
        while waiting and time.monotonic() < deadline:
            time.sleep(0.05)
            ended |= {rank for rank in waiting if self.processes[rank].poll() is not None}
            answers = {rank: self.lines("answer", rank) for rank in waiting}
            # Only rank 0 writes the id before its answer.
            waiting -= ended | {rank for rank in waiting if len(answers[rank]) >= (lines if rank == 0 else 1)}
            if ended or any('{"error"' in line for answer in answers.values() for line in answer):
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        return ended

    def lines(self, kind: str, rank: int) -> list[str]:
        """Return the whole lines of a file of a rank: "answer", "errors", or "nccl" for NCCL's log."""
        try:
            with open("%s/%s.%d" % (self.folder, kind, rank), encoding="utf-8", errors="replace") as file:
                return [line.rstrip() for line in file if line.strip() and line.endswith("\n")]
        except OSError:
            return []


def check_answers(
    ranks: Ranks, answers: dict[int, Any], node: JobNode, usable: list[Device], required: str, patterns: LogPatterns
) -> Iterator[Finding]:
    """Yield the findings of the all-reduce from what `ranks.run` returned; print NCCL's lines where it failed.

    `usable` are the devices of the fabric that can be used; `required` names it, "" where TCP is no error.
    """
    from rdma_images.nccl_logs.verdict import judge_lines  # here, since `validate` takes the processes alone along

    verdict = judge_lines([line for rank in answers for line in ranks.lines("nccl", rank)], patterns)
    failed = [rank for rank, answer in answers.items() if "error" in answer]
    if failed:
        # One that was late waited for another, which says more.
        rank = next((rank for rank in failed if not answers[rank]["error"].startswith("not done")), failed[0])
        log = ranks.lines("nccl", rank)
        first = next((number for number, line in enumerate(log) if "NCCL WARN" in line), max(0, len(log) - 5))
        for line in log[first : first + QUOTED_LINES]:
            print(line, flush=True)
        reason = answers[rank]["error"] + ("; " + verdict.sentence if log else "")
        yield "error", "all-reduce", "rank %d of %d: %s" % (rank, ranks.total, reason)
        return
    if not all(answer["is_right"] for answer in answers.values()):
        yield "error", "all-reduce", "the sum over all GPUs is wrong: an adapter, a link or a GPU changes data"
    slowest = max(answers.values(), key=lambda answer: answer["seconds"])
    bandwidth = MESSAGE_BYTES / slowest["seconds"] * 2 * (ranks.total - 1) / ranks.total / 1e9
    if node.nodes > 1:
        if required and not verdict.is_over(required):
            severity = "warning" if verdict.network == "unknown" else "error"
            yield severity, "network", f"{required} is required: {verdict.sentence}"
        elif not required and verdict.network == "fallback" and usable:
            yield "warning", "network", f"this node has RDMA adapters: {verdict.sentence}"
    if node.number == 0:
        speed = f"{ranks.total} GPUs of {node.nodes} node(s): {MESSAGE_BYTES >> 20} MiB at {bandwidth:.1f} GB/s bus"
        ready = f"NCCL was ready after {slowest['start_seconds']:.1f} s"
        yield "note", "all-reduce", f"{speed} bandwidth, {ready}; {verdict.sentence}"
