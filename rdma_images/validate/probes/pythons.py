"""The Pythons on PATH, and the folders of packages that each imports from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rdma_images.validate.probes import rootfs

NAMES = ("python", "python3")
PROGRAM = re.compile(r"python(3\.\d+)")
CONFIG = "pyvenv.cfg"
CONFIGURED = re.compile(r"^\s*include-system-site-packages\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE)
# What puts another Python in front when a container starts.
ACTIVATES = re.compile(r"\bactivate\b|\b(?:conda|mamba|uv|poetry|pixi|pipenv)\s+run\b|\bPATH=")
COMMON_FILES = ("/etc/profile", "/etc/environment")  # set PATH in every image of Debian's and Ubuntu's
MAX_CONFIG_BYTES = 1 << 16  # bytes: a pyvenv.cfg has some 200


def on_path(path: str, root: rootfs.Root) -> list[dict[str, Any]]:
    """Return the Pythons on PATH in order: {"path": folder, "names", "folders"}.

    The folders are those of packages. None at all where one is in no folder bin: that is a script, which chooses one.
    """
    pythons = []
    folders_read = set()
    for folder in path.split(":"):
        real_folder = root.real(folder) if folder.startswith("/") else ""
        names = [name for name in NAMES if real_folder and root.is_file("%s/%s" % (real_folder, name))]
        if not names or real_folder in folders_read:
            continue
        if os.path.basename(real_folder) != "bin":
            return []
        folders_read.add(real_folder)
        folders = [root.real(folder_) for folder_ in _folders("%s/%s" % (real_folder, names[0]), root)]
        pythons.append({"path": folder.rstrip("/"), "names": names, "folders": list(dict.fromkeys(folders))})
    return pythons


def _folders(program: str, root: rootfs.Root) -> list[str]:
    """Return a Python's folders of packages, with its base's where it says so."""
    prefix, real = os.path.dirname(os.path.dirname(program)), root.real(program)
    match = PROGRAM.fullmatch(os.path.basename(real))
    version = re.escape(match.group(1)[2:]) if match else r"\d+"
    base = _below(os.path.dirname(os.path.dirname(real)), version, root)
    config = "%s/%s" % (prefix, CONFIG)
    if not root.is_file(config):
        return base
    return _below(prefix, r"\d+", root) + (base if CONFIGURED.search(root.text(config, MAX_CONFIG_BYTES) or "") else [])


def _below(prefix: str, version: str, root: rootfs.Root) -> list[str]:
    """Return the folders of packages of a prefix.

    The system's Python also looks into /usr/local.
    """
    pattern = re.compile(r".*/lib(?:64)?/python3(?:\.%s)?/(?:site|dist)-packages" % version)
    prefixes = (prefix, "/usr/local") if prefix == "/usr" else (prefix,)
    folders = [folder for start in prefixes for folder in root.glob(start + "/lib*/python3*/*-packages")]
    return [folder for folder in folders if pattern.fullmatch(folder)]


def activated(texts: Iterable[tuple[str, str]], entry: Sequence[str]) -> bool:
    """Return whether a shell's file or the entry point may choose another Python."""
    scripts = [text for path, text in texts if path not in COMMON_FILES]
    unread = any(word.endswith(".sh") and not word.startswith("/") for word in entry)
    return unread or any(ACTIVATES.search(text) for text in [*scripts, " ".join(entry)])
