"""What `import torch` brought in an image, for one that differs in its topmost layer alone: a changed script.

The import takes half of a validation. It may be left out only where that layer holds nothing that the import reads.
"""

import json
import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from rdma_images.core import atomic
from rdma_images.core.paths import state_folder
from rdma_images.engine import Engine
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import ImportedTorch
from rdma_images.validate import image_layers, probing

# Where users have scripts. Python imports from "/" in the probes, too: a name in this list is no module of torch's.
FOLDERS = ("workspace", "home", "srv")
WHITEOUT = ".wh."  # removes what lower layers have, see the OCI image specification


def find(engine: Engine, subject: ImageConfig) -> ImportedTorch | None:
    """Return what was measured in an image with the same lower layers; None where it may differ in this image."""
    try:
        earlier = ImportedTorch.model_validate_json(_file(subject).read_bytes())
    except (OSError, ValidationError):
        return None
    return earlier if _is_unrelated(engine, subject, earlier) else None


def keep(engine: Engine, subject: ImageConfig, torch: ImportedTorch) -> None:
    """Keep what was measured in an image, for others with its lower layers, where its topmost layer did not matter."""
    if _is_unrelated(engine, subject, torch):
        atomic.write(_file(subject), torch.model_dump_json())


def is_harmless(member: tarfile.TarInfo, searched: Sequence[str]) -> bool:
    """Return whether a member of a layer changes nothing in the paths that were `searched`, and is no library.

    It then is a file, folder or link below FOLDERS, or one of these, and removes nothing.
    """
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    is_plain = member.isfile() or member.isdir() or member.issym()
    if not is_plain or not parts or parts[0] not in FOLDERS:
        return False
    if len(parts) == 1:
        return member.isdir() and member.mode & 0o005 == 0o005
    path = "/" + "/".join(parts)
    overlaps = any(_is_below(path, other) or _is_below(other, path) for other in searched)
    return not overlaps and not parts[-1].startswith(WHITEOUT) and ".so" not in parts[-1]


def _is_unrelated(engine: Engine, subject: ImageConfig, torch: ImportedTorch) -> bool:
    if not torch.searched:  # measured before it was known
        return False
    try:
        return image_layers.topmost_holds_only(engine, subject, lambda member: is_harmless(member, torch.searched))
    except Exception:  # a damaged layer has its own check, see measuring
        return False


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _file(subject: ImageConfig) -> Path:
    decides = [probing.payload(), subject.platform, subject.layers[:-1], subject.environment]
    key = sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return state_folder() / "torch-imports" / f"{key}.json"
