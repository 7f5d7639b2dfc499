"""Print the findings of a check as lines that `rdma_images.jobs.run.watch` reads."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    Finding = tuple[str, str, str]  # severity, name, sentence

NODE_CHECK, ALL_REDUCE = "rdma-images-node-check", "rdma-images-all-reduce"  # the first words of their lines


def node_name() -> str:
    """Return the node's name: in a pod Kubernetes', which the pod's own hostname is not."""
    return os.environ.get("RDMA_IMAGES_NODE") or socket.gethostname()


def print_findings(check: str, findings: Iterable[Finding]) -> bool:
    """Print each finding of a check as it comes; return whether one was an error."""
    has_failed = False
    for severity, name, sentence in findings:
        has_failed |= severity == "error"
        print_finding(check, severity, name, sentence)
    return has_failed


def print_finding(check: str, severity: str, name: str, sentence: str) -> None:
    """Print the line of a finding of the check `check` on the subject `name`."""
    print(check, node_name(), severity, name + ":", sentence, flush=True)
