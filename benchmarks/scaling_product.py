"""Measure what a registry cache saves a second machine, with the product's build.

python benchmarks/scaling_product.py [TARGET]

Builds TARGET (erdma-nccl-tests) as a rehearsal, from a clone of what is committed, in two private engines that have
nothing in common but a registry: the first writes the cache, the second reads it. Bases that this machine has made
before are given to both. Needs root.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from registry import running_registry
from scaling import MODES, private_engine

from rdma_images.core import paths


def main(target: str) -> None:
    """Print the seconds of the build that writes the cache, and of the one that reads it."""
    bases = paths.state_folder() / "bases"
    with tempfile.TemporaryDirectory(prefix="rdma-bench-") as name, running_registry(Path(name)) as host:
        clone = Path(name) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(paths.PROJECT), str(clone)], check=True)
        cache = f"type=registry,ref={host}/cache:product"
        for what, option in (("writes", f"--cache-to={cache},{MODES}"), ("reads", f"--cache-from={cache}")):
            with empty_engine(bases):
                seconds, steps, cached = build(clone, target, option)
            print(f"engine that {what} the cache: {seconds:.0f} s, {cached} of {steps} steps from a cache", flush=True)


@contextmanager
def empty_engine(bases: Path) -> Iterator[None]:
    """Provide a private engine in a state folder with nothing but bases."""
    with private_engine():
        if bases.is_dir():
            shutil.copytree(bases, Path(os.environ["RDMA_IMAGES_STATE"]) / "bases", dirs_exist_ok=True)
        yield


def build(clone: Path, target: str, option: str) -> tuple[float, int, int]:
    """Return the seconds of `invoke build`, BuildKit's steps, and those from a cache."""
    shutil.rmtree(clone / "build", ignore_errors=True)
    command = [sys.executable, "-m", "invoke", "build", "--target", target, "--rehearse", "--no-validate", option]
    start = time.perf_counter()
    process = subprocess.run(command, cwd=clone, check=True, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    ends = dict(re.findall(r"^#(\d+) (DONE|CACHED)", process.stderr, re.MULTILINE))  # BuildKit's plain progress
    return seconds, len(ends), sum(ending == "CACHED" for ending in ends.values())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "erdma-nccl-tests")
