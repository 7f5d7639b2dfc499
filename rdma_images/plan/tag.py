"""The tag grammar: every version of an image, in one order, so that two images never share a tag.

2.15.0-cu13.2-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.13-debian13
"""

import re

from rdma_images import components
from rdma_images.components import gpus
from rdma_images.core.errors import RefusedError
from rdma_images.plan.candidate import Candidate

PROPERTIES = {"variant": {"devel": "devel"}, "fallback": {"allow": "fallback"}, "platform": {"linux/arm64": "arm64"}}
LONGEST = 128  # characters, and the alphabet below: github.com/distribution/reference, regexp.go
_TAG = re.compile(r"[\w][\w.-]{0,127}", re.ASCII)


def tag(candidate: Candidate) -> str:
    """Return the tag of `candidate`; its properties come last, where they are not the default. Raises RefusedError."""
    parts = [
        f"{component.tag}{candidate[component.name]}" for component in components.IN_TAGS if component.name in candidate
    ]
    parts += [words[candidate[axis]] for axis, words in PROPERTIES.items() if candidate[axis] in words]
    if candidate.versions.get("gpu", gpus.ALL) != gpus.ALL:
        parts.append(candidate["gpu"])
    text = "-".join(parts)
    if not _TAG.fullmatch(text):
        raise RefusedError(
            f"{text!r} is not a valid tag\na tag has at most {LONGEST} letters, digits, '_', '.' and '-'"
        )
    return text
