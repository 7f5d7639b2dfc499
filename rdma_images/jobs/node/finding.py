"""Print the findings of a check as lines that `rdma_images.jobs.run.watch` reads."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Finding = tuple[str, str, str]  # severity, name, sentence

MARK = "rdma-images-node-check"


def node_name() -> str:
    """Return the node's name: in a pod Kubernetes', which the pod's own hostname is not."""
    return os.environ.get("RDMA_IMAGES_NODE") or socket.gethostname()


def print_finding(severity: str, name: str, sentence: str) -> None:
    """Print the line of a finding."""
    print(MARK, node_name(), severity, name + ":", sentence, flush=True)
