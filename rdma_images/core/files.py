"""The user's files and folders, with errors that say what is wrong and what to do."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

from rdma_images.core import exit_codes, paths
from rdma_images.core.errors import RefusedError

MAX_TEXT_BYTES = 16 * 2**20  # bytes of a text that a user gives; a log of a job may have more

# What to do by the system's error, errno(3).
FIXES = {
    errno.ENOENT: "write it, or name another",
    errno.EACCES: "let user {user} read and write it, or run as the user who may",
    errno.EPERM: "let user {user} read and write it, or run as the user who may",
    errno.EISDIR: "remove the folder, or name a file",
    errno.EEXIST: "move away what is there: it is not a folder",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.EROFS: "run in a copy that can be written",
    errno.ELOOP: "remove the link, which leads back to itself",
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space, or ask for a larger quota",
}
FULL = (errno.ENOSPC, errno.EDQUOT)


class FileError(RefusedError):
    """A file or a folder of the user's that cannot be used."""


class FullDiskError(FileError):
    """A file that there is no space for: the command was used well, and failed."""

    exit_code = exit_codes.FAILED


def describe_file_error(error: OSError | ValueError, path: Path | str | None = None) -> FileError:
    """Return the FileError, with a fix, for an error of the system or of Python about a path.

    `path` is used where the error does not name one. ValueError is what Python raises for a path that no system can
    have and for text that is not UTF-8.
    """
    if not isinstance(error, OSError):
        return _not_text(error, path)
    if program := _missing_program(error):
        return FileError(f"{program}: no such program on PATH\ninstall it")
    where = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else Path(path or ".")
    if error.errno == errno.ENOTDIR:
        file = next((parent for parent in where.parents if os.path.lexists(parent) and not parent.is_dir()), where)
        return FileError(f"{where}: {file} is not a folder\nmove it away, or name another place")
    if error.errno in (errno.ENOENT, errno.EEXIST) and (link := _dangling(where)):
        return FileError(f"{where}: {link} is a link to nothing\nremove the link, or make what it leads to")
    fix = FIXES.get(error.errno or 0, "see that it can be read and written").format(user=os.geteuid())
    kind = FullDiskError if error.errno in FULL else FileError
    return kind(f"{where}: {error.strerror or error}\n{fix}")


@contextmanager
def raising_file_error(path: Path | str | None = None) -> Iterator[None]:
    """Raise errors about the user's files in the block as FileError.

    Without `path`, only errors that name a file, and those of a full disk: the others may be about something else.
    """
    try:
        yield
    except OSError as error:
        if path is None and error.filename is None:
            if error.errno in FULL:
                fix = f"free disk space; `{paths.COMMAND} engine.status` says what can be freed"
                raise FullDiskError(f"{error.strerror}\n{fix}") from None
            raise
        raise describe_file_error(error, path) from None
    except ValueError as error:
        if path is None or not (isinstance(error, UnicodeError) or "null" in str(error)):
            raise
        raise describe_file_error(error, path) from None


def read_text(path: Path, largest: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a user's file. Raises FileError as `read_bytes`, and if not UTF-8."""
    content = read_bytes(path, largest)
    with raising_file_error(path):
        return content.decode("utf-8").replace("\r\n", "\n")


def read_bytes(path: Path, largest: int = MAX_TEXT_BYTES) -> bytes:
    """Return what is in a user's file of at most `largest` bytes.

    A pipe under /dev is read, as a shell's <(command) makes it. A named pipe is refused, since it may have no writer.

    Raises:
        FileError: for a file that is missing, cannot be read, is a named pipe, or has more bytes.
    """
    with raising_file_error(path):
        if path.is_fifo() and path.parts[:2] != ("/", "dev"):
            raise FileError(f"{path}: is a named pipe\nname a file")
        with path.open("rb") as file:
            content = file.read(largest + 1)
    if len(content) > largest:
        raise FileError(f"{path}: has more than {largest // 2**20} MiB\nname a smaller file")
    return content


def list_folder(folder: Path) -> list[Path]:
    """Return the sorted paths in a folder, none without it. Raises FileError if unreadable."""
    if not exists(folder):
        return []
    with raising_file_error(folder):
        return sorted(folder.iterdir())


def exists(path: Path) -> bool:
    """Return whether `path` exists. Raises FileError if unknown, and for a link to nothing."""
    with raising_file_error(path):
        try:
            path.stat()
        except FileNotFoundError:
            if _dangling(path):
                raise
            return False
        return True


def expand_user(text: str) -> Path:
    """Return a typed path with "~" replaced. Raises FileError for a user without a home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        user = text.partition("/")[0]
        raise FileError(f"{text}: {user} has no home folder on this machine\nwrite the whole path") from None


def _missing_program(error: OSError) -> str | None:
    """Return the program that could not be started; None where the error is about a file."""
    frames = [frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)]
    if error.errno != errno.ENOENT or frames[-1:] != ["_execute_child"] or "/" in str(error.filename):
        return None
    return str(error.filename)


def _dangling(path: Path) -> Path | None:
    """Return the link to nothing that `path` is, or leads over."""
    return next((link for link in (path, *path.parents) if link.is_symlink() and not link.exists()), None)


def _not_text(error: ValueError, path: Path | str | None) -> FileError:
    if isinstance(error, UnicodeDecodeError):
        return FileError(f"{path}: byte {error.start + 1} is not UTF-8\nwrite the file anew in UTF-8")
    escaped = str(path).encode("unicode_escape").decode("ascii")
    return FileError(f"{escaped}: no file can have this name\nname another")
