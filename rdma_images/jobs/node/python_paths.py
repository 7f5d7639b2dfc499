"""Check that the job's variables and working directory leave Python and its own modules as they are."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from rdma_images.jobs.node.system import python_path, run_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.jobs.node.finding import Finding

# Modules that only Python's own tests, or nobody, imports: folders of these names are common and do no harm.
HARMLESS_MODULES = {"antigravity", "idlelib", "test", "this", "turtledemo"}


def standard_modules() -> set[str]:
    """Return the names of the standard library's modules."""
    names = getattr(sys, "stdlib_module_names", None)  # Python 3.10 and later
    return set(names or (entry.partition(".")[0] for entry in os.listdir(os.path.dirname(os.__file__))))


def check_python_starts() -> Iterator[Finding]:
    """Yield a finding if PYTHONPATH or PYTHONHOME keeps Python from starting.

    The check itself runs without these variables (python3 -E).
    """
    settings = ["%s=%s" % (name, os.environ[name]) for name in ("PYTHONHOME", "PYTHONPATH") if os.environ.get(name)]
    answer = run_program(sys.executable, "-c", "import random, tempfile") if settings else None
    if answer and answer[0]:
        reason = (answer[1].strip().splitlines() or ["exit code %d" % answer[0]])[-1]
        sentence = "%s does not start with %s: %s: leave the variable out, or take modules of this Python"
        yield "error", "python", sentence % (sys.executable, ", ".join(settings)[:300], reason[:300])


def check_hidden_modules() -> Iterator[Finding]:
    """Yield files in PYTHONPATH or the working directory that hide Python's own modules."""
    for folder in dict.fromkeys([*python_path(), os.getcwd()]):
        try:
            entries = set(os.listdir(folder))
        except OSError:
            continue
        if "os.py" in entries:  # a standard library, which `check_python_starts` has tried
            continue
        modules = {entry[:-3]: entry for entry in entries if re.fullmatch(r"\w+\.py", entry)}
        modules.update(
            (name, name + "/")
            for name in standard_modules() & entries
            if os.path.exists(os.path.join(folder, name, "__init__.py"))
        )
        for name in sorted(modules.keys() & standard_modules() - HARMLESS_MODULES)[:4]:
            sentence = "%s hides Python's own module %s from programs: rename it"
            yield "warning", "python", sentence % (os.path.join(folder, modules[name]), name)
