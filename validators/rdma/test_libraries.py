"""Libraries of a fabric that a wheel brings along."""

import re

import pytest

from rdma_images.inspection.inspection import base_name
from rdma_images.inspection.measurements import Files
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.transports import opened_libraries

BUNDLED_SOURCE = "kvcache-ai/Mooncake, pull request 2271, and ai-dynamo/nixl, pull request 1929: what two copies did"
BUNDLED_LIBRARY = re.compile(r"(lib(?:fabric|efa|ibverbs|rdmacm))-[0-9a-f]{8}\.so.*")
MAX_SHOWN = 4


def _is_for_the_fabric(path: str, fabric: str) -> bool:
    """Return whether a wheel's library is a copy of one by which, as far as is known, its package uses the fabric."""
    match = BUNDLED_LIBRARY.fullmatch(base_name(path))
    opens = opened_libraries(path, fabric)
    return match is not None and (opens is None or f"{match[1]}.so.1" in opens)


@pytest.mark.validator("libraries.bundled", source=BUNDLED_SOURCE, severity="warning")
def test_bundled(files: Files, fabric: str, require: Requirement) -> None:
    """No wheel brings a libfabric or libibverbs of its own for the fabric, under the name that auditwheel gives it."""
    paths = [p for p, file in files.libraries.items() if not file.target and _is_for_the_fabric(p, fabric)]
    require(
        not paths,
        expected="none: a process then has two, each with its own devices and providers",
        actual=f"a wheel's own {', '.join(paths[:MAX_SHOWN])} finds none of the image's providers, and so no device"
        if paths
        else "none",
        fix="install a build of that wheel which takes the image's own library (auditwheel repair --exclude), or leave "
        "it out where NCCL uses the fabric",
    )
