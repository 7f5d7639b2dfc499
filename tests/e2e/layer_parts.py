"""Small images of the product's own making, and what BuildKit says it did."""

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from rdma_images.build import build_images, build_record, build_spec, preflight_folder, run_bake
from rdma_images.build.build_spec import BuildSpec
from rdma_images.core import atomic, paths
from rdma_images.core.compression import Compression
from rdma_images.core.progress import progress
from rdma_images.core.stream import ChunkReader
from rdma_images.engine import Engine
from rdma_images.engine import client as engine_client
from rdma_images.engine.layout import layout
from rdma_images.inputs import lock, project, target_options
from rdma_images.inputs.project import Project
from rdma_images.inputs.wheels import Lock, Wheel
from rdma_images.registry.client import Repository
from rdma_images.render import dockerfiles
from tests.support import real_parts
from tests.support.changed_facts import facts_with

numbers = count()


def wheel(name: str, torch: str, base: str) -> Wheel:
    """Return a wheel from the lock of efa-pytorch with that torch on that base."""
    (image,) = target_options.chosen_images(
        project.load(), ["efa-pytorch"], False, [f"pytorch={torch}", f"base={base}"], True
    )
    return next(wheel for wheel in lock.read_image_lock(image).wheels if wheel.name == name)


def standing(base: str, stand_in: str) -> Project:
    """Return this project, where a rehearsal of `base` stands on the Debian `stand_in`."""
    checkout = project.load()
    bases = checkout.facts.bases
    row = bases.bases[base].model_copy(update={"stand_in": stand_in})
    changed = bases.model_copy(update={"bases": {**bases.bases, base: row}})
    return replace(checkout, facts=facts_with(bases=changed))


@dataclass
class SmallBuild:
    """efa-pytorch with few wheels: everything else is as the product has it."""

    engine: Engine

    def spec(
        self, wheels: Sequence[Wheel], *changes: str, name: str = "small", checkout: Project | None = None
    ) -> BuildSpec:
        """Return its build spec, with inputs of its own, so that it is always built."""
        checkout = checkout or project.load()
        (image,) = target_options.chosen_images(checkout, ["efa-pytorch"], False, changes, True)
        spec = build_spec.build_spec(image, checkout, rehearse=True)
        few = Lock(request=spec.lock.request, wheels=tuple(wheels))
        no_wheels = Lock(request=spec.lock.request, wheels=())
        image = replace(image, id=f"test-{name}", tag=f"test-{name}")
        atomic.write(
            paths.image_folder(image.id) / "Dockerfile", dockerfiles.render(image, few, no_wheels, lock.tools())
        )
        preflight_folder.pack(image)
        return replace(spec, image=image, lock=few, other_inputs=f"test {next(numbers)}")

    def build(
        self,
        spec: BuildSpec,
        checkout: Project | None = None,
        layers: Repository | None = None,
        compression: Compression = "zstd",
        builder: str | None = None,
    ) -> str:
        """Build it; returns its name in the engine."""
        options = run_bake.BuildOptions(rehearse=True, layers=layers, compression=compression, builder=builder)
        (done,) = build_images.build_specs([spec], checkout or project.load(), self.engine, options, progress)
        return done.ref

    def build_by_stages(self, spec: BuildSpec) -> str:
        """Build it as in an engine that takes no layers, one with Docker's classic store."""
        return replace(self, engine=replace(self.engine, store="classic")).build(
            replace(spec, other_inputs="by stages")
        )

    def files(self, ref: str) -> dict[str, tuple[int, str]]:
        """Return the files of /opt/venv: mode and digest by path."""
        client = engine_client(self.engine)
        container = client.containers.create(ref)
        files = {}
        with tarfile.open(
            fileobj=io.BufferedReader(ChunkReader(container.get_archive("/opt/venv")[0])), mode="r|"
        ) as tree:
            for member in tree:
                file = tree.extractfile(member) if member.isreg() else None
                digest = hashlib.sha256(file.read()).hexdigest() if file else member.linkname
                files[member.name] = member.mode, digest
        container.remove()
        return files

    def forget(self, name: str) -> None:
        """Remove the image of that name, where there is one."""
        ref = f"{build_record.REPOSITORY}/efa-pytorch:test-{name}-rehearsal"
        subprocess.run(["docker", "image", "rm", ref], env=self.engine.environ(), capture_output=True)

    def layers(self, ref: str) -> list[str]:
        """Return the digests of an image's layers, lowest first, as they are pushed."""
        return [layer["digest"] for layer in self.descriptors(ref)]

    def descriptors(self, ref: str) -> list[dict[str, Any]]:
        """Return the layers of an image as its manifest names them, lowest first."""
        saved = subprocess.Popen(["docker", "image", "save", ref], env=self.engine.environ(), stdout=subprocess.PIPE)
        blobs: dict[str, bytes] = {}
        with saved, tarfile.open(fileobj=saved.stdout, mode="r|") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() and member.size < 100_000 else None
                blobs[member.name] = file.read() if file else b""
        data = json.loads(blobs["index.json"])["manifests"][0]
        while "layers" not in data:
            data = json.loads(blobs["blobs/" + data["digest"].replace(":", "/")])
            data = data["manifests"][0] if "manifests" in data else data
        return list(data["layers"])


BUILDKITD = """\
root = "{folder}/root"
[grpc]
  address = ["unix://{folder}/socket"]
[otel]
  socketPath = "{folder}/otel"
[cdi]
  disabled = true
[worker.oci]
  enabled = true
  snapshotter = "overlayfs"
  networkMode = "host"
[worker.containerd]
  enabled = false
[registry."{registry}"]
  http = true
"""


@contextmanager
def remote_builder(engine: Engine, registry: str) -> Iterator[str]:
    """Run a buildkitd that shares only that registry with the engine; yield its name."""
    folder = Path(tempfile.mkdtemp(prefix="rdma-images-"))  # pytest's own folders are too deep for a socket's path
    (folder / "settings").write_text(BUILDKITD.format(folder=folder, registry=registry))
    environ = engine.environ()
    path = f"{layout().program('runc').parent}:{environ['PATH']}"
    program = real_parts.program("buildkitd")
    assert program
    with (folder / "log").open("w") as log:
        command = [str(program), "--config", str(folder / "settings")]
        process = subprocess.Popen(command, env={**environ, "PATH": path}, stdout=log, stderr=log)
    try:
        while not (folder / "socket").exists():
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        create = ["docker", "buildx", "create", "--name", folder.name, "--driver", "remote", f"unix://{folder}/socket"]
        subprocess.run(create, env=environ, check=True, capture_output=True)
        yield folder.name
    finally:
        subprocess.run(["docker", "buildx", "rm", folder.name], env=environ, capture_output=True)
        process.terminate()
        process.wait()
        for group in Path("/sys/fs/cgroup").glob("*/buildkit"):  # which it leaves empty
            group.rmdir()
        shutil.rmtree(folder)


def ran() -> set[str]:
    """Return the steps that BuildKit ran in the last build and did not take from its cache: "wheel-torch 1/1"."""
    log = run_bake.log_file().read_text(encoding="utf-8")
    titles = dict(re.findall(r"(?m)^#(\d+) \[(?:\S+ )?([\w-]+ +\d+/\d+)\] (?:RUN|COPY|ADD|WORKDIR)", log))
    had = set(re.findall(r"(?m)^#(\d+) CACHED$", log))
    return {re.sub(" +", " ", title) for number, title in titles.items() if number not in had}
