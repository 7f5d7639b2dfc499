"""GDRCopy's library, which NCCL's network plugin opens."""

import re

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Libraries
from rdma_images.validate.validator import Requirement, validator

LIBRARY = "libgdrapi.so"  # the name that aws-ofi-nccl opens: src/nccl_ofi_gdrcopy.cpp
SOURCE = "aws/aws-ofi-nccl, src/nccl_ofi_gdrcopy.cpp; NVIDIA/gdrcopy, Makefile: the file is named after major and minor"


@validator("gdrcopy.loaded", source=SOURCE)
def test_loaded(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """The loader finds GDRCopy, in the version of the label, by the name that the plugin opens."""
    version = inspection.subject.label("component.gdrcopy") or ""
    answer = libraries.resolved.get(LIBRARY)
    file = answer.file if answer else ""
    found = re.search(r"libgdrapi\.so\.(\d+\.\d+)", file)
    planned = ".".join(version.split(".")[:2])
    require(
        found is not None and (not planned or found[1] == planned),
        expected=f"{LIBRARY} is a libgdrapi.so.{planned or '…'}",
        actual=file or (answer.error if answer else "") or f"the loader finds no {LIBRARY}",
        fix=f"add the folder of {LIBRARY} to /etc/ld.so.conf.d, and run ldconfig",
    )
