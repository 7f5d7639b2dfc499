"""Time publishing: full, with a changed torch, with nothing to do, and `docker push`.

python benchmarks/publish.py [MEBIBYTES]

Real parts: the engine, Debian's docker-registry on the loopback interface without a password. The image is synthetic:
random bytes in layers of the sizes that torch's wheels have to each other, MEBIBYTES (400) in all.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median

from registry import running_registry

from rdma_images import engine, facts
from rdma_images.core import atomic, paths
from rdma_images.core.check import Check
from rdma_images.core.image import BuildRecord, Image
from rdma_images.engine import Engine
from rdma_images.inspection.report import Report, encode_report
from rdma_images.plan import matrix, planner
from rdma_images.publish import publish_images
from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.publish.publisher import Publisher
from rdma_images.registry.registries import Oci
from tests.support.case_parts import (
    report_on,  # the checkout is installed with `pip install -e .`, so its root is on the path
)

# Shares of torch 2.15's wheels: torch, cuDNN, cuBLAS, NCCL, cuSPARSE, cuSOLVER, cuFFT, and the small ones together.
SHARES = (0.29, 0.22, 0.15, 0.11, 0.08, 0.06, 0.05, 0.04)
SUITE = f"sha256:{'2' * 64}"
RUNS = 5
IMAGES = 6


def main(mebibytes: int) -> None:
    """Print how long each way of publishing takes."""
    with tempfile.TemporaryDirectory(prefix="rdma-bench-") as name:
        folder = Path(name)
        paths.IMAGES = folder / "images"
        running = engine.ensure(lambda line: print(line, file=sys.stderr))
        context = folder / "context"
        write_layers(context, mebibytes)
        old = build_image(running, context, "old")
        (context / "layer0").write_bytes(os.urandom(int(SHARES[0] * mebibytes * 2**20)))
        new = build_image(running, context, "new")
        try:
            measure_against_docker(running, folder, old, mebibytes)
            measure_changed_torch(running, folder, old, new)
            measure_up_to_date(running, folder, context)
        finally:
            remove_images(running, old, new)


def measure_against_docker(running: Engine, folder: Path, digest: str, mebibytes: int) -> None:
    """Push the same image to an empty registry, by `docker push` and by us, in turns."""
    ours: list[float] = []
    theirs: list[float] = []
    sending: list[float] = []
    for _ in range(RUNS):
        with running_registry(folder) as host:
            name = f"{host}/bench/theirs:full"
            run_docker(running, "tag", digest, name)
            theirs.append(seconds_of(partial(run_docker, running, "push", "-q", name)))
            run_docker(running, "rmi", name)
        with running_registry(folder) as host:
            item = approved_image("efa-pytorch", digest)
            ours.append(seconds_of(partial(_publish_and_note, sending, item, host, running)))
    rows = (("docker push", theirs), ("publish: the push in it", sending), ("publish: everything", ours))
    for who, times in rows:
        middle = median(times)
        print(f"{who}: {middle:.2f} s, {mebibytes / middle:.0f} MiB/s (median of {RUNS}; {spread(times)})")


def _publish_and_note(sending: list[float], item: ApprovedImage, host: str, running: Engine) -> None:
    sending.append(publish_items([item], host, running))


def measure_changed_torch(running: Engine, folder: Path, old: str, new: str) -> None:
    """Push a torch of another version where everything else is there."""
    with running_registry(folder) as host:
        full = seconds_of(lambda: publish_items([approved_image("efa-pytorch", old)], host, running))
        change = seconds_of(lambda: publish_items([approved_image("efa-pytorch", new)], host, running))
    print(f"full push {full:.2f} s, with a changed torch {change:.2f} s ({change / full:.0%})")


def measure_up_to_date(running: Engine, folder: Path, context: Path) -> None:
    """Publish six images that are all there, in this process and as a whole process."""
    with running_registry(folder) as host:
        digests = []
        for number in range(IMAGES):
            (context / f"layer{len(SHARES) - 1}").write_bytes(os.urandom(2**20))
            digests.append(build_image(running, context, f"small{number}", layers=1))
        items = [approved_image("efa-pytorch", digest, number) for number, digest in enumerate(digests)]
        publish_items(items, host, running)
        inside = [seconds_of(lambda: publish_items(items, host, None)) for _ in range(RUNS)]
        command = [sys.executable, __file__, "--again", str(folder), host]
        whole = [seconds_of(lambda: subprocess.run(command, check=True)) for _ in range(RUNS)]
        remove_images(running, *digests)
    print(f"nothing to do for {IMAGES} images: {median(inside):.2f} s, whole process {median(whole):.2f} s (median)")


def publish_again(folder: Path, host: str) -> None:
    """Measure the whole process of a run with nothing to do."""
    paths.IMAGES = folder / "images"
    images = [numbered_image("efa-pytorch", number) for number in range(IMAGES)]
    publish_items(list(publish_images.approved_images(images, images, matrix.load(), SUITE)), host, None)


def publish_items(items: list[ApprovedImage], host: str, running: Engine | None) -> float:
    """Publish the images, and return the seconds of docker's pushes. Fails where one is not published."""

    def needed() -> Engine:
        if running is None:
            raise AssertionError("there was nothing to send")
        return running

    publisher = Publisher(engine=needed, progress=lambda _: None)
    entry = Oci(kind="oci", host=host, prefix="bench", credentials="none")
    pushing = 0.0
    for outcome in publish_images.publish(items, {"bench": entry}, publisher):
        assert outcome.copy, outcome.error
        pushing += outcome.copy.traffic.seconds
    return pushing


def numbered_image(target: str, number: int) -> Image:
    """Return the image of a target as planned, under a name of its own."""
    (image,) = planner.plan(matrix.load(), facts.load(), targets=[target]).images
    return replace(image, id=f"{image.id}-{number}", tag=f"{image.tag}-{number}")


def approved_image(target: str, digest: str, number: int = 0) -> ApprovedImage:
    """Return the image `digest` as built and validated as the target's default row."""
    image = numbered_image(target, number)
    check = Check("bench", "it is measured", "static", "error", "passed")
    now = "2026-11-21T08:00:00+00:00"
    build = BuildRecord(image.id, digest, digest, digest, (), now, 1.0)
    report = Report(digest, digest, SUITE, image.id, (), now, 1.0, (check,), report_on(image).inspection)
    folder = paths.image_folder(image.id)
    atomic.write(folder / "build.json", json.dumps(asdict(build)))
    atomic.write(folder / "report.json", json.dumps(encode_report(report)))
    return publish_images.approved_images([image], [image], matrix.load(), SUITE)[0]


def write_layers(context: Path, mebibytes: int) -> None:
    """Write random files, one for each layer."""
    context.mkdir()
    for number, share in enumerate(SHARES):
        with (context / f"layer{number}").open("wb") as file:
            for _ in range(max(1, int(share * mebibytes))):
                file.write(os.urandom(2**20))


def build_image(running: Engine, context: Path, name: str, layers: int = len(SHARES)) -> str:
    """Build the context as a zstd image, as the product does, and return its digest."""
    first = len(SHARES) - layers
    lines = [f"COPY --link layer{number} /layer{number}\n" for number in range(first, len(SHARES))]
    (context / "Dockerfile").write_text("FROM scratch\n" + "".join(lines))
    kind = "compression=zstd,force-compression=true,oci-mediatypes=true"
    output = f"type=image,name=rdma-images-bench/{name}:bench,{kind}"
    metadata = context.parent / "metadata.json"
    options = ["--provenance=false", f"--metadata-file={metadata}", f"--output={output}"]
    run_docker(running, "buildx", "build", "-q", *options, str(context))
    return str(json.loads(metadata.read_text())["containerimage.digest"])


def run_docker(running: Engine, *arguments: str) -> None:
    """Run one docker command."""
    subprocess.run(["docker", *arguments], env=running.environ(), check=True, capture_output=True)


def remove_images(running: Engine, *digests: str) -> None:
    """Remove images from the engine; its build cache has limits of its own."""
    for digest in digests:
        subprocess.run(["docker", "rmi", "-f", digest], env=running.environ(), check=False, capture_output=True)


def seconds_of(action: Callable[[], object]) -> float:
    """Return how long `action` takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def spread(times: list[float]) -> str:
    """Return the fastest and the slowest."""
    return f"{min(times):.2f} to {max(times):.2f} s"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--again"]:
        publish_again(Path(sys.argv[2]), sys.argv[3])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
