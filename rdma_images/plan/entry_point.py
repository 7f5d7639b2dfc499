"""Read which variables an entry point's scripts set, before anything is built.

Only lines that always run are read: what a condition, a loop or a function guards is left to validation, which starts
the entry point.
"""

import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from rdma_images.core import paths
from rdma_images.core.image import Additions

BLOCK_START = re.compile(r"(?:if|case|for|while|until|select)\b|(?:function\s+)?[\w-]+\s*\(\)|\{\s*$")
BLOCK_END = re.compile(r"(?:fi|esac|done|\})(?:\s|;|$)")
SET = re.compile(r"(?P<verb>export|exec\s+env|exec|env|declare\s+-x)?\s*(?P<rest>\w+=.*)")
UNSET = re.compile(r"unset\s+(?:-v\s+)?(?P<names>[\w\s]+)$")
HERE_TEXT = re.compile(r"<<-?\s*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)")
MAX_SCRIPT_BYTES = 1 << 20  # bytes of a script


def settings(additions: Additions, exported: Collection[str]) -> Iterator[tuple[str, str, str | None]]:
    """Yield file and line, variable and value that the scripts set; None where unset.

    A variable that is not in `exported` reaches other programs only where a line exports it.
    """
    for script in _scripts(additions):
        if not script.is_file() or script.stat().st_size > MAX_SCRIPT_BYTES:
            continue
        text = script.read_text(encoding="utf-8", errors="replace")
        if re.match(r"#!.*\b(?:ba|da|z|k)?sh\b", text) or script.suffix == ".sh":
            for number, variables in _lines(text, exported):
                yield from (
                    (f"{paths.display_path(script)}:{number}", name, value) for name, value in variables.items()
                )


def _scripts(additions: Additions) -> Iterator[Path]:
    """Yield the user's files that the entry point or the command names."""
    words = [*(additions.entrypoint or ()), *(additions.command or ())]
    named_paths = {posixpath.normpath(posixpath.join(additions.workdir, word)) for word in words}
    named_paths |= {f"/usr/local/bin/{word}" for word in words if "/" not in word}
    for file in additions.files:
        for path in sorted(named_paths):
            if path == file.destination:
                yield paths.PROJECT / file.path
            elif path.startswith(f"{file.destination}/"):
                yield paths.PROJECT / file.path / posixpath.relpath(path, file.destination)


def _lines(text: str, exported: Collection[str]) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    """Yield the lines of a shell's script that always run and set or unset variables."""
    depth, end_of_text = 0, ""
    for number, raw_line in enumerate(text.splitlines(), 1):
        line = raw_line.strip()
        if end_of_text:
            end_of_text = "" if line == end_of_text else end_of_text
        elif match := HERE_TEXT.search(line):
            end_of_text = match["end"]
        elif BLOCK_END.match(line):
            depth = max(0, depth - 1)
        elif BLOCK_START.match(line):
            depth += not re.search(r"[;\s](?:fi|esac|done|\})$", line)
        elif not depth:
            if match := UNSET.match(line):
                yield number, dict.fromkeys(match["names"].split())
            elif match := SET.match(line):
                yield number, dict(_assignments(match["rest"], match["verb"], exported))


def _assignments(text: str, verb: str | None, exported: Collection[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the variables that a line exports or sets for one command."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # a quote that a later line closes
        return
    pairs = [word.partition("=") for word in words if re.match(r"[A-Za-z_]\w*=", word)]
    for name, _, value in pairs:
        if (verb or len(pairs) < len(words) or name in exported) and not re.search(r"[$`]", value):
            yield name, value
