"""The folders of validators/ that an image gets, and why.

The checks of `validators/efa/` are for images for EFA, those of `validators/torch/` for images with torch, and so on.
Each folder's `__init__.py` says so in a function `reason(inspection)`: a sentence's part such as "planned with
nccl-tests 2.20.0", or "" for an image that does not get its checks. Whoever adds a folder changes no other file.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import NamedTuple

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.core.paths import VALIDATORS
from rdma_images.inspection.inspection import ImageConfig, Inspection
from rdma_images.inspection.measurements import Measured
from rdma_images.validate.expected_fabric import image_expectations


class ListedCheck(NamedTuple):
    """A check that an image gets, with its folder and why the image gets the folder's checks."""

    folder: str
    reason: str
    id: str
    title: str
    tier: str
    severity: str


def folder_reasons(names: Iterable[str], inspection: Inspection) -> dict[str, str]:
    """Return why an image gets the checks of the folders `names`, by name.

    Returns:
        Only the folders whose checks it gets.

    Raises:
        RdmaImagesError: A folder does not say which images get its checks.
    """
    reasons = {name: _reason(name, inspection) for name in sorted(set(names))}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(name: str, inspection: Inspection) -> str:
    module = import_folder(name)
    if not hasattr(module, "reason"):
        raise RdmaImagesError(
            f"validators/{name}/ does not say which images get its checks\n"
            "add a function `reason(inspection)` to its __init__.py, as in validators/efa/"
        )
    return str(module.reason(inspection))


def import_folder(name: str) -> ModuleType:
    """Return the module of validators/ called `name`, which need not be on Python's path."""
    if "validators" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "validators", VALIDATORS / "__init__.py", submodule_search_locations=[str(VALIDATORS)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules["validators"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["validators"])
    return importlib.import_module(f"validators.{name}")


def planned_inspection(image: Image) -> Inspection:
    """Return what is known of a planned image before anything is measured in it."""
    subject = ImageConfig(ref=image.id, digest="not built yet", platform=image.platform, environment=image.environment)
    return Inspection(subject=subject, expected=image_expectations(subject, Measured(), image), measured=Measured())
