"""The tag grammar: every version of an image, in one order, so that two images never share a tag."""

import re

from rdma_images.candidate import Candidate
from rdma_images.errors import RefusedError

# Component and what is written before its version: 2.15.0-cu13.2-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.13-debian13
GRAMMAR = (
    ("pytorch", ""),
    ("nccl-tests", ""),
    ("cuda", "cu"),
    ("nccl", "nccl"),
    ("efa-installer", "efa"),
    ("aws-ofi-nccl", "ofi"),
    ("python", "py"),
    ("base", ""),
)
PROPERTIES = {"variant": {"devel": "devel"}, "fallback": {"allow": "fallback"}, "platform": {"linux/arm64": "arm64"}}
LONGEST = 128  # characters, and the alphabet below: github.com/distribution/reference, regexp.go
_TAG = re.compile(r"[\w][\w.-]{0,127}", re.ASCII)


def tag(candidate: Candidate) -> str:
    """The tag of `candidate`; its properties come last, where they are not the default. Raises RefusedError."""
    parts = [f"{word}{candidate[component]}" for component, word in GRAMMAR if component in candidate]
    parts += [words[candidate[axis]] for axis, words in PROPERTIES.items() if candidate[axis] in words]
    made = "-".join(parts)
    if not _TAG.fullmatch(made):
        raise RefusedError(f"{made!r} is no tag: at most {LONGEST} letters, digits, '_', '.' and '-'")
    return made
