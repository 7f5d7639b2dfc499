"""Measure what a registry cache saves a second machine, with a synthetic image.

python benchmarks/scaling.py [MEBIBYTES]

Two private engines with separate state on this one machine, Debian's docker-registry between them. Synthetic: three
images a shard on one shared stage of MEBIBYTES (200) of random bytes, which stands for the wheels. Needs root.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from registry import running_registry

from rdma_images.engine import Engine, private
from rdma_images.engine.debian import bootstrap

SHARDS = (("a", "b", "c"), ("d", "e", "f"))
DOCKERFILE = """
FROM scratch AS base
ADD base.tar /
FROM base AS wheels
RUN --network=none mkdir /layer && head -c {size} /dev/urandom > /layer/wheels && touch -d @0 /layer/wheels /layer
"""
IMAGE = """
FROM scratch AS {name}
COPY --link --from=wheels /layer/ /
COPY --link {name} /
"""
MODES = "mode=max,compression=zstd,image-manifest=true,oci-mediatypes=true"


def main(mebibytes: int) -> None:
    """Print the seconds of each shard, with the cache and without it."""
    base = bootstrap.base_tar("debian13", lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory(prefix="rdma-bench-") as name:
        folder = Path(name)
        write_context(folder / "context", base, mebibytes)
        with running_registry(folder) as host:
            cache = f"type=registry,ref={host}/cache:shared"
            with private_engine() as first:
                seconds_alone = bake(first, folder / "context", SHARDS[0])
            with private_engine() as first:
                writing = bake(first, folder / "context", SHARDS[0], f"--set=*.cache-to={cache},{MODES}")
            with private_engine() as second:
                reading = bake(second, folder / "context", SHARDS[1], f"--set=*.cache-from={cache}")
            with private_engine() as second:
                without = bake(second, folder / "context", SHARDS[1])
    print(f"first shard {seconds_alone:.1f} s, and written to the cache {writing:.1f} s")
    print(f"second shard on another engine {without:.1f} s, from the cache {reading:.1f} s ({reading / without:.0%})")


def write_context(folder: Path, base: Path, mebibytes: int) -> None:
    """Write the Dockerfile, a file for each image, and a bake file with a target for each."""
    folder.mkdir()
    names = [name for shard in SHARDS for name in shard]
    text = DOCKERFILE.format(size=mebibytes * 2**20) + "".join(IMAGE.format(name=name) for name in names)
    (folder / "Dockerfile").write_text(text)
    for name in names:
        (folder / name).write_text(name)
    shutil.copy(base, folder / "base.tar")
    output = "type=image,compression=zstd,force-compression=true,oci-mediatypes=true"
    blocks = [
        f'target "{name}" {{\n  target = "{name}"\n  tags = ["bench/{name}:x"]\n  output = ["{output}"]\n}}\n'
        for name in names
    ]
    (folder / "docker-bake.hcl").write_text("".join(blocks))


@contextmanager
def private_engine() -> Iterator[Engine]:
    """Provide a private engine with an empty state folder, removed afterwards."""
    before = os.environ.get("RDMA_IMAGES_STATE")
    os.environ["RDMA_IMAGES_STATE"] = folder = tempfile.mkdtemp(prefix="rdma-bench-")
    try:
        yield private.up()
    finally:
        private.down(purge=True)
        shutil.rmtree(folder, ignore_errors=True)
        del os.environ["RDMA_IMAGES_STATE"]
        if before is not None:
            os.environ["RDMA_IMAGES_STATE"] = before


def bake(running: Engine, folder: Path, names: tuple[str, ...], *options: str) -> float:
    """Return the seconds that baking the targets takes."""
    start = time.perf_counter()
    command = ["docker", "buildx", "bake", "--provenance=false", "--progress=plain", *options, *names]
    subprocess.run(command, cwd=folder, env=running.environ(), check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
