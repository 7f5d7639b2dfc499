"""Run one all-reduce over the GPUs of a node: a process for each, which starts the job's NCCL."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from rdma_images.preflight import all_reduce_rank

LIMIT_SECONDS = 90.0  # for a few nodes; a second more for each node
GRACE_SECONDS = 5.0  # for the others, after one has failed
MESSAGE_BYTES = 256 << 20


def rank_program() -> tuple[str, ...]:
    """Return the arguments by which Python runs a rank: its file, or its text where `validate` brings no files."""
    source = getattr(all_reduce_rank, "SOURCE", None)
    return ("-c", source) if source else (os.path.abspath(all_reduce_rank.__file__),)


class Ranks:
    """This node's processes of the all-reduce, one for each GPU, see all_reduce_rank; the `with` block ends them."""

    def __init__(
        self, place: tuple[int, int], gpus: int, nccl_path: str, folder: str, environment: Mapping[str, str]
    ) -> None:
        """Start the processes.

        Args:
            place: The number of nodes, and this node's.
            gpus: How many GPUs each node has.
            nccl_path: The job's NCCL.
            folder: For what the processes write.
            environment: Theirs.
        """
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
        words = [sys.executable, "-E", "-B", *rank_program(), nccl_path, rank, self.total, gpu, MESSAGE_BYTES]
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
        is_ended = self.wait(list(self.processes), 2, limit)
        answers: dict[int, Any] = {}
        for rank in self.processes:
            last = (self.lines("answer", rank) or [""])[-1]
            errors = self.lines("errors", rank) or ["it ended without a word"]
            missing = errors[-1] if rank in is_ended else "not done after %d s" % limit
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
