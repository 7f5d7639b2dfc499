"""Carry the probes into an image, a pod or a host, run them once, and read what they found."""

import base64
import functools
import json
import shlex
import zlib
from typing import Any

from testinfra.host import Host

from rdma_images.errors import RdmaImagesError
from rdma_images.paths import VALIDATORS
from rdma_images.validate.door import TIMED_OUT
from rdma_images.validate.measured import Measured, measured

STATIC = ("system", "tools", "packages", "tree", "torch")
PYTHONS = ("python3", "/opt/venv/bin/python3", "/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3")
# In the order in which they import each other.
MODULES = (
    "elf",
    "leftovers",
    "tree",
    "loader",
    "tools",
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


def probe(host: Host, names: tuple[str, ...] = STATIC) -> Measured | str:
    """What the probes `names` measure on `host`; a sentence saying why where no Python there can run them."""
    reasons = []
    for python in PYTHONS:
        result = host.run(f"{python} -c %s {' '.join(map(shlex.quote, names))}", payload())
        out = result.stdout_bytes.decode("utf-8", "replace")
        if MARK in out:
            return measured(_answers(out))
        error = result.stderr_bytes.decode("utf-8", "replace").strip()
        if result.rc == TIMED_OUT:
            return f"{python} did not answer in time, or did not stop printing"
        if "older than" in error:
            reasons.append(error.splitlines()[-1])
    return reasons[0] if reasons else "the image has no Python to run the probes"


def _answers(out: str) -> dict[str, Any]:
    line = out[out.index(MARK) + len(MARK) :].splitlines()[0]
    try:
        answers = json.loads(line)
    except ValueError:
        raise RdmaImagesError("what the probes printed in the image is cut short: nothing can be said of it") from None
    return answers if isinstance(answers, dict) else {}
