"""Links to libraries that lead nowhere."""

import re

import pytest

from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import Files, Libraries, Settings
from rdma_images.validate.pytest_plugin import Requirement
from validators.support.in_use import requested_names

SEARCH_SOURCE = "glibc elf/dl-load.c: a name that cannot be opened in one folder is looked for in the next"
VERSIONED_NAME = re.compile(r"\.so\.\d")  # the others are for a linker
DRIVER_LIBRARY = re.compile(r"lib(?:cuda|nvidia-|nvcuvid)[\w-]*\.so")  # which a runtime mounts
MAX_SHOWN = 4


@pytest.mark.validator("libraries.links", source=SEARCH_SOURCE, severity="note")
def test_links(
    inspection: Inspection, files: Files, libraries: Libraries, settings: Settings, require: Requirement
) -> None:
    """No link to a library leads nowhere in a folder that the loader is told to search."""
    environment = inspection.subject.environment
    folders = {*environment.get("LD_LIBRARY_PATH", "").split(":"), *settings.loader_folders}
    usable_names = {base_name(path) for path, file in files.libraries.items() if not file.condition}
    elsewhere = {*requested_names(inspection, files, libraries), *usable_names}
    lines = [
        f"{path} is a link to {file.target}, which is not there: the loader passes by it"
        for path, file in files.libraries.items()
        if file.condition == "dangling" and path.rpartition("/")[0] in folders and base_name(path) not in elsewhere
        if VERSIONED_NAME.search(path) and not DRIVER_LIBRARY.match(base_name(path))
    ]
    require(
        not lines,
        expected="links that lead to libraries",
        actual="; ".join(lines[:MAX_SHOWN]) or "all of them do",
        fix="install what the links name, or remove them",
    )
