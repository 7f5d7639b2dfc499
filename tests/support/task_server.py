"""`invoke` as typed, forked from a process with the tasks: a tenth of Python's start.

Each call is a process of its own, with its own folder, variables, input, outputs and exit code. What a start itself
does (which modules it imports, signals, a standard output that is closed) is tested with a Python of its own.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SERVER = """
import gc, importlib, json, os, pkgutil, sys
import invoke.main, rdma_images, tasks

for module in pkgutil.walk_packages(rdma_images.__path__, "rdma_images."):
    if ".node." not in module.name and ".probes." not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
gc.freeze()
for line in sys.stdin:
    call = json.loads(line)
    if process := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
        continue
    os.environ.clear()
    os.environ.update(call["environ"])
    os.chdir(call["cwd"])
    for number, (name, flags) in enumerate((("in", os.O_RDONLY), ("out", os.O_WRONLY), ("err", os.O_WRONLY))):
        os.dup2(os.open(f"{call['folder']}/{name}", flags), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
    sys.argv = [f"{os.path.dirname(invoke.__file__)}/__main__.py", *call["words"]]
    invoke.main.program.run()
    break
"""


@dataclass
class TaskServer:
    """A process that has imported a checkout's tasks; `run` types one."""

    process: subprocess.Popen[str]
    project: Path
    environ: Mapping[str, str]

    def run(
        self, *words: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Return a task's exit code and outputs; `given` is its standard input."""
        assert self.process.stdin
        assert self.process.stdout
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for stream, text in (("in", stdin), ("out", ""), ("err", "")):
                (folder / stream).write_text(text, encoding="utf-8")
            call = {"words": words, "cwd": str(cwd or self.project), "environ": dict(environ or self.environ)}
            self.process.stdin.write(json.dumps({**call, "folder": name}) + "\n")
            self.process.stdin.flush()
            exit_code = int(self.process.stdout.readline())
            out, err = ((folder / stream).read_text(encoding="utf-8") for stream in ("out", "err"))
        return subprocess.CompletedProcess(words, exit_code, out, err)


@contextmanager
def serving(project: Path, environ: Mapping[str, str]) -> Iterator[TaskServer]:
    """Yield a server of the tasks of the checkout `project`, started with these variables."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=project,
        env=dict(environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield TaskServer(process, project, environ)
        assert process.stdin
        process.stdin.close()
