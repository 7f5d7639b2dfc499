"""Carry the probes into an image, a pod or a host, run them once, and read what they found."""

import base64
import functools
import json
import zlib

from testinfra.host import Host

from rdma_images.paths import VALIDATORS
from rdma_images.validate.door import NOT_FOUND, TIMED_OUT
from rdma_images.validate.measured import Measured, lost, measured

STATIC = ("system", "tools", "packages", "tree", "torch")
PYTHONS = ("python3", "/opt/venv/bin/python3", "/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3")
# In the order in which they import each other.
MODULES = (
    "elf",
    "leftovers",
    "tree",
    "tools",
    "loader",
    "libraries",
    "pytorch",
    "packages",
    "system",
    "devices",
    "gpus",
    "measure",
)
MARK = "rdma-images-measured:"
START = """
import base64,json,sys,types,zlib
if sys.version_info<(3,8): sys.exit("python "+sys.version.split()[0]+" is older than 3.8")
sys.dont_write_bytecode=True
for name in ("validators","validators.probes"):
    sys.modules[name]=types.ModuleType(name); sys.modules[name].__path__=[]
for name,source in json.loads(zlib.decompress(base64.b64decode("%s"))):
    full="validators.probes."+name
    module=sys.modules[full]=types.ModuleType(full); setattr(sys.modules["validators.probes"],name,module)
    exec(compile(source,name+".py","exec"),module.__dict__)
module.main()
"""


@functools.cache
def payload() -> str:
    """The probes as one Python program that needs nothing but an interpreter."""
    sources = [(name, (VALIDATORS / "probes" / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]
    packed = base64.b64encode(zlib.compress(json.dumps(sources).encode(), 9)).decode()
    return START % packed


def probe(host: Host, names: tuple[str, ...] = STATIC, volumes: tuple[str, ...] = ()) -> Measured | str:
    """What the probes `names` measure on `host`; a sentence saying why where no Python there can run them.

    `volumes` are folders of other file systems that belong to what is measured.
    Where there is a Python that should have, and brings no answer, all of it is lost.
    """
    reasons, failures = [], []
    for python in PYTHONS:
        words = (payload(), *names, *volumes)
        result = host.run(f"{python} -c{' %s' * len(words)}", *words)
        _, mark, answers = result.stdout_bytes.partition(MARK.encode())
        if mark:
            return measured(answers.partition(b"\n")[0], names)
        if result.rc == TIMED_OUT:
            return lost(names, f"{python} did not answer in time, or did not stop printing")
        said = result.stderr_bytes.decode("utf-8", "replace").strip().splitlines()[-1:]
        if "older than" in "".join(said):
            reasons += said
        elif result.rc not in NOT_FOUND:
            failures.append(f"{python} ended with {result.rc}{': ' if said else ''}{''.join(said)[:300]}")
    if failures:
        return lost(names, failures[0])
    return reasons[0] if reasons else "the image has no Python to run the probes"
