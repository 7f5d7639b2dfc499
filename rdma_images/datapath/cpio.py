"""Write a cpio archive in the one format the kernel unpacks as its first root filesystem (newc)."""

import stat
from pathlib import PurePosixPath


def archive(files: dict[str, bytes], programs: dict[str, bytes], links: dict[str, str]) -> bytes:
    """Return an initramfs of plain files, programs (executable) and symbolic links, by path without a leading slash.

    The same content gives the same bytes: everything belongs to root and is of 1970. Folders are added as needed.
    """
    entries = {folder: (stat.S_IFDIR | 0o755, b"") for path in (*files, *programs, *links) for folder in _above(path)}
    entries |= {path: (stat.S_IFREG | 0o644, data) for path, data in files.items()}
    entries |= {path: (stat.S_IFREG | 0o755, data) for path, data in programs.items()}
    entries |= {path: (stat.S_IFLNK | 0o777, target.encode()) for path, target in links.items()}
    # Sorted, a folder comes before what is in it, which the kernel needs.
    parts = [_entry(number, path, *entries[path]) for number, path in enumerate(sorted(entries), 1)]
    return b"".join((*parts, _entry(0, "TRAILER!!!", 0, b"")))


def _above(path: str) -> list[str]:
    """Return the folders above a path, the topmost last, without the root."""
    return [str(folder) for folder in PurePosixPath(path).parents if folder.name]


def _entry(inode: int, path: str, mode: int, data: bytes) -> bytes:
    """Return a header of 13 numbers in hexadecimal, the name and the data, both filled up to 4 bytes."""
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    numbers = (inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
