"""Modules that come before others of their names: in folders of PYTHONPATH, of the user, or where a program starts."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence

from rdma_images.validate.probes import tools

IMPORT_SECONDS = 20  # for one import
MAX_TRIED = 4
MODULE_SUFFIX = re.compile(r"py|(?:cpython-\w+(?:-[\w-]+)?\.|abi3\.)?so")  # of a module
STANDARD_FOLDERS = [os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]


class Shadow:
    """A module that is imported from `first` in place of `second`, for the reason `by`."""

    def __init__(self, name: str, first: str, second: str, by: str) -> None:
        """`by` completes "comes before … by"."""
        self.name, self.first, self.second, self.by = name, first, second, by

    def __str__(self) -> str:
        """Return it as a part of a sentence."""
        hidden = re.sub(r".*/(?=[^/]*-packages/)", "", self.second)
        second = "Python's own %s" % self.name if is_standard(self) else hidden
        return "%s comes before %s by %s" % (self.first, second, self.by)


def find_shadows(path: Sequence[str]) -> dict[str, Shadow]:
    """Return what the first folders of the search path hide of others, by module."""
    folders = list(dict.fromkeys(map(os.path.realpath, filter(None, path))))
    named = [os.path.realpath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    user = os.path.realpath(site.getusersitepackages() or "/")
    shadow_by_name: dict[str, Shadow] = {}
    for index, folder in enumerate(folders):
        if folder in named or folder == user:
            by = "PYTHONPATH" if folder in named else "the user's own packages"
            for shadow in hidden_modules(folder, folders[index + 1 :], by):
                shadow_by_name.setdefault(shadow.name, shadow)
    return shadow_by_name


def hidden_modules(folder: str, later: Iterable[str], by: str) -> list[Shadow]:
    """Return the modules of a folder that hide others, of `later` folders or Python's own."""
    modules = _modules(folder)
    shadows = []
    for path in dict.fromkeys([*STANDARD_FOLDERS, *later]) if modules else ():
        if path != folder:
            hidden = _modules(path)
            shadows += [
                Shadow(name, modules[name], hidden[name], by) for name in sorted(modules.keys() & hidden.keys())
            ]
    return shadows


def explain_failure(error: BaseException, shadows: Mapping[str, Shadow], names: Iterable[str]) -> Shadow | None:
    """Return what hides a module that an exception went through, or one of `names`."""
    route = [(getattr(error, "name", None) or "").partition(".")[0]]
    step, files = error.__traceback__, []
    while step:
        files.append(os.path.realpath(step.tb_frame.f_code.co_filename))
        step = step.tb_next
    by_file = [
        name
        for file in reversed(files)
        for name, shadow in shadows.items()
        if file == shadow.first or file.startswith(shadow.first + "/")
    ]
    return next((shadows[name] for name in [*route, *by_file, *names] if name in shadows), None)


def is_standard(shadow: Shadow) -> bool:
    """Return whether what is hidden is one of Python's own modules."""
    return os.path.dirname(shadow.second) in STANDARD_FOLDERS


def failing_imports(workdir: str, path: Sequence[str], first: str) -> list[dict[str, str]]:
    """Return the modules in `workdir` that hide others and keep a program from starting.

    Args:
        workdir: The folder in which a program starts.
        path: The folders of modules.
        first: The module that is imported where one of Python's own is hidden; "" for none.

    Returns:
        What fails there and not elsewhere, each with the module, what it hides, and the exception's words.
    """
    start = os.path.realpath(workdir)
    failures: list[dict[str, str]] = []
    tried: list[str] = []
    folders = list(dict.fromkeys(map(os.path.realpath, filter(None, path))))
    if start == "/" or start in folders:
        return []
    for shadow in hidden_modules(start, folders, "the working directory"):
        module = first if is_standard(shadow) else shadow.name
        if not module or module in tried or len(tried) == MAX_TRIED:
            continue
        tried.append(module)
        words = _failure(module, start)
        if words and not _failure(module, "/"):
            failures.append({"module": module, "first": shadow.first, "second": shadow.second, "words": words})
    return failures


def _failure(module: str, folder: str) -> str:
    """Return the last line of an import that fails in a folder; "" where it works."""
    code = "import os, sys; os.chdir(sys.argv[2]); __import__(sys.argv[1])"
    rc, _, err = tools.bounded([sys.executable, "-c", code, module, folder], IMPORT_SECONDS, tools.MAX_OUTPUT_BYTES)
    lines = err.decode("utf-8", "replace").strip().splitlines()
    return (lines[-1] if lines else "it ends with %s" % rc) if rc else ""


def _modules(folder: str) -> dict[str, str]:
    """Return the modules and packages in a folder by name; no namespaces, which hide nothing."""
    paths = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    for name in names:
        stem, _, rest = name.partition(".")
        whole = "%s/%s" % (folder, name)
        is_module = MODULE_SUFFIX.fullmatch(rest) if rest else os.path.isfile(whole + "/__init__.py")
        if stem.isidentifier() and is_module:
            paths[stem] = whole
    return paths
