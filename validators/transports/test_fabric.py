"""Libraries that move data beside NCCL use the image's own library of the fabric."""

import re
from collections.abc import Iterable

from rdma_images.inspection.inspection import Inspection, nccl_in_use
from rdma_images.inspection.measurements import Files, Libraries
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.in_use import LIBFABRIC, closure, plugin_path
from validators.support.transports import opened_libraries, transports

SOURCE = (
    "facts/packages, where each file has its sources; ai-dynamo/dynamo, issues 12105 and 13005: two libfabrics in one "
    "process deadlock, or do not agree"
)
# libfabric-0a1b2c3d.so.1.29.0 is auditwheel's name for a copy of libfabric.so.1.
SHARED = re.compile(r"(lib[a-z]+)(?:-[0-9a-f]{8})?\.so(?:\.[\d.]+)?")
MAX_SHOWN = 4


def fabric_library(inspection: Inspection, libraries: Libraries, name: str) -> str:
    """Return the file that NCCL's network plugin, else the loader, takes for a library of the fabric; "" for none."""
    nccl = nccl_in_use(inspection)
    plugin = plugin_path(inspection, libraries, nccl.path) if nccl else None
    of_plugin = closure(libraries, plugin).libraries.get(name) if plugin else None
    answer = libraries.resolved.get(name)
    return of_plugin or (answer.file if answer else "")


def taken_libraries(inspection: Inspection, libraries: Libraries, paths: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return which file each of `paths` gets for a library by which it is to use the fabric: (path, name, file)."""
    fabric = inspection.expected.fabric
    unknown = (LIBFABRIC,) if fabric == "efa" else ()  # of what facts/packages does not know
    taken = []
    for path in paths:
        opens = opened_libraries(path, fabric)
        for name, file in closure(libraries, path).libraries.items():
            match = SHARED.fullmatch(name)
            if match and f"{match[1]}.so.1" in (unknown if opens is None else opens):
                taken.append((path, f"{match[1]}.so.1", file))
    return taken


@validator("transports.fabric", source=SOURCE)
def test_fabric(inspection: Inspection, files: Files, libraries: Libraries, require: Requirement) -> None:
    """NIXL, Mooncake, NVSHMEM and their like take the fabric's library that NCCL takes, and no second one."""
    taken = taken_libraries(inspection, libraries, transports(inspection, files))
    known = [(path, file, own) for path, name, file in taken if (own := fabric_library(inspection, libraries, name))]
    if not known:
        skip("nothing but NCCL needs a library of the fabric, or the image has none")
    faults = [f"{path} takes {file}, and NCCL {own}" for path, file, own in known if file != own]
    require(
        not faults,
        expected=", ".join(sorted({own for _, _, own in known})),
        actual="; ".join(faults[:MAX_SHOWN]) or ", ".join(path for path, _, _ in known[:MAX_SHOWN]),
        fix="install a build that takes the image's library, or remove the second one and what leads to it: a run "
        "path, LD_LIBRARY_PATH or a file in /etc/ld.so.conf.d",
    )
