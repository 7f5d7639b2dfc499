"""The Pythons on PATH, and the folders of packages that each imports from."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

NAMES = ("python", "python3")
PROGRAM = re.compile(r"python(3\.\d+)")
CONFIG = "pyvenv.cfg"
CONFIGURED = re.compile(r"^\s*include-system-site-packages\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE)
# What puts another Python in front when a container starts.
ACTIVATES = re.compile(r"\bactivate\b|\b(?:conda|mamba|uv|poetry|pixi|pipenv)\s+run\b|\bPATH=")
OF_ALL = ("/etc/profile", "/etc/environment")  # set PATH in every image of Debian's and Ubuntu's
KEPT = 1 << 16  # characters: a pyvenv.cfg has some 200


class Tree(NamedTuple):
    """A file system: `real` follows links, `text` is what is in a file, `packages` the folders of a prefix."""

    real: Callable[[str], str]
    exists: Callable[[str], bool]
    text: Callable[[str], str]
    packages: Callable[[str], list[str]]


def on_path(path: str, tree: Tree) -> list[dict[str, Any]]:
    """Return each Python on PATH, in its order: {"path": folder, "names", "folders" of packages}.

    None at all where one is in no folder bin: that is a script, which chooses one.
    """
    pythons = []
    seen = set()
    for folder in path.split(":"):
        real_folder = tree.real(folder) if folder.startswith("/") else ""
        names = [name for name in NAMES if real_folder and tree.exists("%s/%s" % (real_folder, name))]
        if not names or real_folder in seen:
            continue
        if os.path.basename(real_folder) != "bin":
            return []
        seen.add(real_folder)
        folders = [tree.real(folder_) for folder_ in _folders("%s/%s" % (real_folder, names[0]), tree)]
        pythons.append({"path": folder.rstrip("/"), "names": names, "folders": list(dict.fromkeys(folders))})
    return pythons


def _folders(program: str, tree: Tree) -> list[str]:
    """Return the folders of packages of a Python: a virtual environment's own, and its base's where it says so."""
    prefix, real = os.path.dirname(os.path.dirname(program)), tree.real(program)
    match = PROGRAM.fullmatch(os.path.basename(real))
    version = re.escape(match.group(1)[2:]) if match else r"\d+"
    base = _below(os.path.dirname(os.path.dirname(real)), version, tree)
    config = "%s/%s" % (prefix, CONFIG)
    if not tree.exists(config):
        return base
    return _below(prefix, r"\d+", tree) + (base if CONFIGURED.search(tree.text(config)) else [])


def _below(prefix: str, version: str, tree: Tree) -> list[str]:
    """Return the folders of packages of a prefix; the system's Python looks into /usr/local, too."""
    pattern = re.compile(r".*/lib(?:64)?/python3(?:\.%s)?/(?:site|dist)-packages" % version)
    prefixes = (prefix, "/usr/local") if prefix == "/usr" else (prefix,)
    return [folder for root in prefixes for folder in tree.packages(root) if pattern.fullmatch(folder)]


def activated(texts: Iterable[tuple[str, str]], entry: Sequence[str]) -> bool:
    """Return whether a container may start with another Python: by a shell's file, or what its entry point runs."""
    said = [text for path, text in texts if path not in OF_ALL]
    unread = any(word.endswith(".sh") and not word.startswith("/") for word in entry)
    return unread or any(ACTIVATES.search(text) for text in [*said, " ".join(entry)])


def on_path_of_system(path: str) -> list[dict[str, Any]]:
    """Return the same of this system."""
    return on_path(path, Tree(os.path.realpath, os.path.exists, _text, _packages))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(KEPT)
    except OSError:
        return ""


def _packages(prefix: str) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(prefix), "lib*", "python3*", "*-packages")))
