"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rdma_images.core import files


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write `text` to `path`; readers meanwhile see the old file or the new one."""
    with files.raising_file_error(path), replacing(path, mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """Provide a temporary file that replaces `path` when the block ends without an error."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise files.FileError(f"{path}: neither a file nor a folder, and nothing may take its place\nname a file")
    with files.raising_file_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(number)
        temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
