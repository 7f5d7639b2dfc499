"""The check that a file can be a library for this machine, by its kind and the beginning of its content.

A condition is "" for a library of the machine, else a word that says what is wrong: see CONDITIONS.
"""

from __future__ import annotations

import stat
import struct

from rdma_images.validate.probes import elf, rootfs

HEAD = elf.HEADER
LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # github.com/git-lfs/git-lfs, docs/spec.md
SHARED_OBJECT = 3  # e_type of what a loader maps, ET_DYN
SPECIAL = ("fifo", "socket", "device")  # opening one may wait for ever
SKIPPED = ("dangling", "loop", "32-bit", "big-endian", "machine")  # the loader looks in the next folder
CONDITIONS = (*SPECIAL, *SKIPPED, "folder", "unreadable", "empty", "lfs-pointer", "text", "no-elf", "cut", "no-library")


def mode_condition(mode: int) -> str:
    """Return the condition of a path by its mode; "" for a regular file or a link."""
    if stat.S_ISFIFO(mode):
        return "fifo"
    if stat.S_ISSOCK(mode):
        return "socket"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "device"
    return "folder" if stat.S_ISDIR(mode) else ""


def content_condition(head: bytes, size: int, machine: str) -> str:
    """Return the condition of a file that begins with `head` on a `machine`.

    The machine is such as "x86_64". A file of another machine is "machine <its own>".
    """
    if not size:
        return "empty"
    if head.startswith(LFS_POINTER):
        return "lfs-pointer"
    if head[:4] != b"\x7fELF":
        return "text" if all(byte > 31 or byte in b"\t\n\r" for byte in head) else "no-elf"
    if len(head) < HEAD:
        return "cut"
    if head[4] != 2:
        return "32-bit"
    if head[5] != 1:
        return "big-endian"
    kind, number = struct.unpack_from("<HH", head, 16)
    if machine and elf.MACHINES.get(number, str(number)) != machine:
        return "machine %s" % elf.MACHINES.get(number, "ELF machine %d" % number)
    table, row, rows = (*struct.unpack_from("<Q", head, 40), *struct.unpack_from("<HH", head, 58))
    if table + row * rows > size:
        return "cut"
    return "" if kind == SHARED_OBJECT else "no-library"


def path_condition(root: rootfs.Root, path: str, machine: str) -> str:
    """Return the condition of the file at `path`, or behind that link."""
    entry = root.behind(path)
    if not entry or entry.target:
        return "loop" if entry else "dangling"
    if not stat.S_ISREG(entry.mode):
        return mode_condition(entry.mode) if entry.mode else "unreadable"
    head = root.read_head(path, HEAD)
    return "unreadable" if head is None else content_condition(head, entry.size, machine)


def condition_kind(condition: str) -> str:
    """Return the word of a condition without what follows it."""
    return condition.partition(" ")[0]
