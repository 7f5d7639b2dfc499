"""What `import torch` brings, kept for images that differ from the measured one in their topmost layer alone.

The import takes most of a validation, and a changed script does not change it. What the layer holds decides, wherever
it lies: no shared library, no Python package, nothing that the import has read. All else is measured each time.
"""

import json
import re
import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from rdma_images.core import atomic
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.engine import Engine
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import ImportedTorch, Measured
from rdma_images.validate import image_layers, run_probes

WHITEOUT = ".wh."  # removes what lower layers have, see the OCI image specification
ELF_MAGIC = b"\x7fELF"
PYTHON = re.compile(r"python\d*(?:\.\d+)?|pyvenv\.cfg")
REUSED = "as in an image with the same lower layers: the topmost holds nothing that it reads"


class EarlierTorch(NamedTuple):
    """The torch of an earlier image, None where it has to be imported, and the reason for either."""

    torch: ImportedTorch | None
    reason: str


def find(engine: Engine, image_config: ImageConfig) -> EarlierTorch:
    """Return what `import torch` brought in an image with the same lower layers."""
    try:
        torch = ImportedTorch.model_validate_json(_file(image_config).read_bytes())
    except (OSError, ValidationError):
        return EarlierTorch(None, "no image with the same lower layers and variables has been measured")
    reason = _why_not(engine, image_config, torch.searched)
    return EarlierTorch(None, reason) if reason else EarlierTorch(torch, REUSED)


def save(engine: Engine, image_config: ImageConfig, measured: Measured) -> None:
    """Keep what `import torch` brought for images with the same lower layers, unless the topmost one matters."""
    if measured.torch and not _why_not(engine, image_config, measured.torch.searched):
        atomic.write(_file(image_config), measured.torch.model_dump_json())


def _why_not(engine: Engine, image_config: ImageConfig, searched: Sequence[str]) -> str:
    """Return why the topmost layer may change what `import torch` brings; "" where it does not."""
    try:
        members = image_layers.topmost_members(engine, image_config, len(ELF_MAGIC))
        return next((reason for member, start in members if (reason := effect(member, start, searched))), "")
    except RdmaImagesError as error:
        return str(error).partition("\n")[0]
    except (OSError, ValueError, tarfile.TarError):  # a damaged layer has its own check, see probe_image
        return "its topmost layer cannot be read"


def effect(member: tarfile.TarInfo, start: bytes, searched: Sequence[str]) -> str:
    """Return how a member of the topmost layer may change what `import torch` brings; "" where it does not.

    Args:
        member: A file, folder or link of the layer.
        start: The first bytes of a file.
        searched: The files and folders that an import has read, see probes/pytorch.py.
    """
    path = "/" + "/".join(part for part in member.name.split("/") if part not in ("", "."))
    folder, _, name = path.rpartition("/")
    if name.startswith(WHITEOUT):
        return f"its topmost layer removes {folder}/{name.removeprefix(WHITEOUT)}"
    if member.isdir():
        return ""
    if not member.isfile() and not member.issym():
        return f"its topmost layer holds {path}, which is no file, folder or link"
    if start == ELF_MAGIC or ".so" in name or path.startswith("/etc/ld.so."):
        return f"its topmost layer holds {path}, which the loader may load or read"
    if name.endswith(".pth") or "-packages/" in path or PYTHON.fullmatch(name):
        return f"its topmost layer holds {path}, a part of a Python or its packages"
    if folder == "" or (folder.count("/") == 1 and name == "__init__.py"):  # Python imports from "/" in the probes
        return f"its topmost layer holds {path}, which Python may import"
    read = next((read for read in searched if _is_below(path, read) or _is_below(read, path)), "")
    return f"its topmost layer holds {path}, and the import reads {read}" if read else ""


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _file(image_config: ImageConfig) -> Path:
    code = [run_probes.payload(), Path(__file__).read_text(encoding="utf-8")]
    decides = [code, image_config.platform, image_config.layers[:-1], image_config.environment]
    key = sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return state_folder() / "lower-layers" / f"{key}.json"
