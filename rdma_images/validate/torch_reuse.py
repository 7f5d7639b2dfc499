"""What `import torch` brings, kept for images that differ from the measured one in their topmost layer alone.

The import takes most of a validation, and a changed script does not change it. The layer may hold,
at any place, no shared library, no Python package and nothing that a variable names. Everything else is measured anew.
"""

import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from rdma_images.core import atomic
from rdma_images.core.paths import state_folder
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import ImportedTorch, Measured, MeasuredLayer
from rdma_images.validate import run_probes

WHITEOUT = re.compile(r".*/\.wh\.[^/]+")  # removes what lower layers have, see the OCI image specification
# What the loader or Python may load, also from "/", where the probes run.
LOADED = re.compile(
    r".*\.so[^/]*|/etc/ld\.so\..+|.*\.pth|.*-packages/.+|.*/python\d*(?:\.\d+)?|.*/python\d[\d.]*/.+|.*/pyvenv\.cfg"
    r"|/[^/]+|/[^/]+/__init__\.py"
)
REUSED = "as in an image with the same lower layers: the topmost holds nothing that it reads"


class ReusableImport(NamedTuple):
    """The torch of an earlier image, None where it has to be imported, and the reason for either."""

    torch: ImportedTorch | None
    reason: str


def find_reusable(image_config: ImageConfig, layers: Callable[[], Sequence[MeasuredLayer]]) -> ReusableImport:
    """Return what `import torch` brought in an image with the same lower layers; `layers` are this image's."""
    try:
        torch = ImportedTorch.model_validate_json(_file(image_config).read_bytes())
    except (OSError, ValidationError):
        return ReusableImport(None, "no image with the same lower layers and variables has been measured")
    try:
        reason = reason_to_import(layers()[-1], image_config)
    except Exception as error:  # whatever an image does to the reading of its layers has its own check
        reason = f"its layers could not be read: {error}"
    return ReusableImport(None, reason) if reason else ReusableImport(torch, REUSED)


def save(image_config: ImageConfig, measured: Measured) -> None:
    """Keep what `import torch` brought for images with the same lower layers, unless the topmost one matters."""
    if measured.torch and measured.layers and not reason_to_import(measured.layers[-1], image_config):
        atomic.write(_file(image_config), measured.torch.model_dump_json())


def reason_to_import(topmost: MeasuredLayer, image_config: ImageConfig) -> str:
    """Return why the topmost layer may change what `import torch` brings; "" where it does not."""
    if len(topmost.names) != topmost.file_count:
        return f"its topmost layer holds {topmost.file_count} files"
    variables = (value for name, value in image_config.environment.items() if name != "PATH")
    named = [part.rstrip("/") for value in variables for part in value.split(":") if part.strip("/") and part[0] == "/"]
    for name in topmost.names:
        if WHITEOUT.fullmatch(name):
            return f"its topmost layer removes files: {name}"
        if not name.endswith("/") and LOADED.fullmatch(name):
            return f"its topmost layer holds {name}, which the loader or Python may load"
        if not name.endswith("/") and any(_is_below(name, path) or _is_below(path, name) for path in named):
            return f"its topmost layer holds {name}, where a variable leads"
    return ""


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _file(image_config: ImageConfig) -> Path:
    code = [run_probes.payload(), Path(__file__).read_text(encoding="utf-8")]
    decides = [code, image_config.platform, image_config.layers[:-1], image_config.environment]
    key = sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return state_folder() / "lower-layers" / f"{key}.json"
