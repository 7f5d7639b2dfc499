"""Show what one node of a job prints, as it prints it."""

import re
import sys
from pathlib import Path

from rdma_images.core.plain import plain
from rdma_images.jobs.results.log_files import GrowingFile

# What names the node in front of a line: Slurm's --label, mpirun's --tag-output (a rank), SkyPilot; kubectl's --prefix.
LABELS = (
    re.compile(r"(?P<node>\d+): "),
    re.compile(r"\[\d+,(?P<node>\d+)\]<std\w+>:? ?"),
    re.compile(r"\((?:head|worker\d+), rank=(?P<node>\d+), [^)]*\) "),
)
POD = re.compile(r"\[pod/(?P<pod>[^/\]]+)/[^\]]+\] ")
# The pods of the operators: a first one of its own, and numbered ones.
PODS = (
    (re.compile(r".+-master-0"), 0),
    (re.compile(r".+-worker-(\d+)"), 1),
    (re.compile(r".+-node-\d+-(\d+)(-\w+)?"), 0),
)
NUMBERED = re.compile(r".+-(?P<node>\d+)\.log")  # what run.sh writes for each machine


class NodeOutput:
    """The lines of one node among those of a run's folder of logs."""

    def __init__(self, folder: Path, node: int) -> None:
        self._folder, self._node = folder, node
        self._logs: dict[Path, GrowingFile] = {}

    def show(self) -> None:
        """Print the node's lines that came since the last call, and those that name no node."""
        for path in sorted(self._folder.rglob("*")):
            if path not in self._logs and path.is_file() and path.parent.name in (self._folder.name, ".streamed"):
                self._logs[path] = GrowingFile(path)
        for path, log in self._logs.items():
            for line in log.new_lines().splitlines():
                node, text = _labelled(line)
                if node is None and path.parent == self._folder and (match := NUMBERED.fullmatch(path.name)):
                    node = int(match["node"]) if path.with_name("output.log").exists() else None
                if node in (None, self._node):
                    print(plain(text), file=sys.stdout, flush=True)


def _labelled(line: str) -> tuple[int | None, str]:
    """Return the node that a line names, None for none, and the line without what names it."""
    if match := POD.match(line):
        node, line = _pod_node(match["pod"]), line[match.end() :]
        if node is not None:
            return node, line
    for label in LABELS:
        if match := label.match(line):
            return int(match["node"]), line[match.end() :]
    return None, line


def _pod_node(pod: str) -> int | None:
    """Return the node of a pod; None for one that is none's, as the launcher's."""
    for pattern, group in PODS:
        if match := pattern.fullmatch(pod):
            return group + int(match[1]) if pattern.groups else group
    return None
