"""Why a file is not a usable library: what it is instead, and what to do."""

from typing import NamedTuple

from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import LibraryFile
from rdma_images.validate.probes.conditions import condition_kind

REINSTALL = "remove {path} and install the library again"
# By condition, see rdma_images/validate/probes/conditions.py.
DESCRIPTIONS = {
    "dangling": ("a link to {target}, which is not there", "install what brings {target}, or point the link at a file"),
    "loop": (
        "a link that leads back to itself, and to no library",
        "remove the link {path} and make it again, to the library's own file",
    ),
    "fifo": ("a pipe: a process that opens it waits forever", REINSTALL),
    "socket": ("a socket", REINSTALL),
    "device": ("a device", REINSTALL),
    "folder": ("a folder: it cannot be loaded", "remove the folder {path} and install the library again"),
    "unreadable": ("not readable for root", "give it back to root: chown root {path} && chmod a+r {path}"),
    "empty": (
        "empty: it cannot be loaded",
        "install or copy it again: what wrote it was interrupted, or the disk was full",
    ),
    "lfs-pointer": ("a Git LFS pointer, text and no library", "run `git lfs pull` before the build copies it"),
    "text": (
        "text, and no library",
        "replace it by the library: an error page that a download saved (use curl --fail), or a script",
    ),
    "no-elf": ("no ELF file, and so no library", "replace it by the library; if it is an archive, unpack it"),
    "cut": (
        "cut short at {size} bytes: it cannot be loaded",
        "download it again, and compare its digest before it is copied",
    ),
    "32-bit": (
        "a 32-bit library: no 64-bit program loads it",
        "install the 64-bit one: compile without -m32, or take this machine's package",
    ),
    "big-endian": ("for a big-endian machine", "take it from a build for {machine}"),
    "machine": ("for {other}, and the image for {machine}", "take it from a build or a stage for {machine}"),
    "no-library": ("an ELF file that is no shared library", "link it with -shared"),
}


class BrokenFile(NamedTuple):
    """A file that is no library: what it is instead, and what to do."""

    actual: str
    fix: str


def broken(inspection: Inspection, path: str) -> BrokenFile | None:
    """Return the fault of the file or link at `path`; None for a library, or unexamined."""
    tree = inspection.measured.tree
    file = tree.files.library_files.get(path) if tree else None
    return _describe(inspection, path, file) if file and file.condition else None


def broken_named(inspection: Inspection, name: str) -> dict[str, BrokenFile]:
    """Return the files and links called `name` that are no libraries, by path.

    A path is a name, too.
    """
    tree = inspection.measured.tree
    paths = [path for path in (tree.files.library_files if tree else ()) if name in (path, base_name(path))]
    return {path: fault for path in sorted(paths) if (fault := broken(inspection, path))}


def _describe(inspection: Inspection, path: str, file: LibraryFile) -> BrokenFile:
    description, fix = DESCRIPTIONS[condition_kind(file.condition)]
    words = {
        "path": path,
        "target": file.target,
        "size": file.size,
        "other": file.condition.partition(" ")[2],
        "machine": inspection.subject.machine,
    }
    behind = f", a link to {file.target}," if file.target and "{target}" not in description else ""
    return BrokenFile(f"{path}{behind} is {description.format(**words)}", fix.format(**words))
