"""Follow the files that the NCCL of this node's processes writes, and judge the network by their lines."""

from __future__ import annotations

import glob
import os
import socket
import tempfile
from typing import TYPE_CHECKING

from rdma_images.nccl_logs.reader import LogReader
from rdma_images.nccl_logs.verdict import judge_summary, logs_channels
from rdma_images.preflight.all_reduce import NETWORKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rdma_images.nccl_logs.verdict import Verdict
    from rdma_images.nccl_logs.wordings import Wordings

READ_BYTES = 8 << 20  # bytes of a file that are read in one look


class NcclLogs:
    """The logs of one node's processes in one folder, which other nodes may share."""

    def __init__(self, folder: str, wordings: Wordings, is_printed: bool) -> None:
        """Take the folder ("" for none), what lines mean, and whether each line goes to standard output, too."""
        self.wordings, self.is_printed = wordings, is_printed
        host = socket.gethostname().partition(".")[0]  # %h of NCCL's
        self.pattern = os.path.join(glob.escape(folder), "%s.*.log" % glob.escape(host)) if folder else ""
        self.offsets = {path: os.path.getsize(path) for path in glob.glob(self.pattern)}  # an earlier attempt's lines
        self.reader = LogReader(wordings)
        self.verdict: Verdict = judge_summary(self.reader.summary(), wordings)

    def read(self) -> None:
        """Read what was written since the last time, up to the last whole line of each file."""
        is_new = False
        for path in sorted(glob.glob(self.pattern)):
            with open(path, "rb") as file:
                file.seek(self.offsets.get(path, 0))
                content = file.read(READ_BYTES)
            whole = content[: content.rfind(b"\n") + 1]
            if not whole:
                continue
            is_new = True
            self.offsets[path] = self.offsets.get(path, 0) + len(whole)
            text = whole.decode("utf-8", "replace")
            self.reader.read(text, os.path.basename(path))
            if self.is_printed:
                print(text, end="", flush=True)
        if is_new:
            self.verdict = judge_summary(self.reader.summary(), self.wordings)

    def misses(self, required: str) -> bool:
        """Return whether the channels between nodes use something else than what is required ("": nothing is)."""
        has_network = any(name.startswith("NET/") for name in self.verdict.channels)
        return bool(required) and has_network and self.verdict.network not in (*NETWORKS[required], "unknown")


def log_variables(folder: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which NCCL writes its log of each process into a folder; "" for none."""
    if not folder:
        return dict(environment)
    variables = dict(environment, NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=os.path.join(folder, "%h.%p.log"))
    if not logs_channels(variables.get("NCCL_DEBUG_SUBSYS", "INIT")):
        del variables["NCCL_DEBUG_SUBSYS"]
    return variables


def find_folder(option: str, environment: Mapping[str, str]) -> str:
    """Return the folder of NCCL's logs: the option's, NCCL_DEBUG_FILE's, or a new one; "" where none can be written."""
    named = option or os.path.dirname(environment.get("NCCL_DEBUG_FILE", ""))
    if named and "%" not in named:
        try:
            os.makedirs(named, exist_ok=True)
        except OSError:
            return ""
        return named if os.access(named, os.W_OK) else ""
    for parent in (environment.get("TMPDIR", ""), "/tmp", "/dev/shm"):
        if os.path.isdir(parent) and os.access(parent, os.W_OK):
            return tempfile.mkdtemp(prefix="nccl-", dir=parent)
    return ""
