"""The user's code as files of a Kubernetes ConfigMap, while it is small."""

import base64
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.write.work import Code

# `kubectl apply` keeps what it applies in an annotation, and these have 262144 bytes in all.
MAX_BYTES = 200_000
EXCLUDED_NAMES = ("__pycache__",)


@dataclass(frozen=True)
class CodeFile:
    """A file of the code: its path below the folder, and its text, or its bytes in base64."""

    path: str
    text: str
    binary: bool


@cache
def read_code(code: Code | None) -> list[CodeFile]:
    """Return the files of a folder of code, but hidden ones. Raises RefusedError for none, and for too many bytes."""
    if code is None:
        return []
    root = Path(code.folder)
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and not is_excluded(path.relative_to(root))]
    if not paths:
        raise RefusedError(f"code {root}: there is no file in it\nname the folder with the training script")
    size = sum(path.stat().st_size for path in paths)
    if size > MAX_BYTES:
        raise RefusedError(
            f"code {root}: {size} bytes, and a ConfigMap takes {MAX_BYTES}\n"
            "put it into the image (`files` of its target), or on a claim: --mount claim:NAME:/PATH"
        )
    return [_file(path, path.relative_to(root)) for path in paths]


def is_excluded(path: Path) -> bool:
    """Return whether a file of the code, by its path below the folder, is hidden or made by Python."""
    return any(part.startswith(".") or part in EXCLUDED_NAMES for part in path.parts)


def _file(path: Path, name: Path) -> CodeFile:
    content = path.read_bytes()
    try:
        return CodeFile(str(name), content.decode("utf-8"), False)
    except UnicodeDecodeError:
        return CodeFile(str(name), base64.b64encode(content).decode(), True)
