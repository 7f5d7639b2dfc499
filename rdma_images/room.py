"""How much disk a build may take, and that it is there before anything begins."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rdma_images.engine import Engine, disk
from rdma_images.order import Order

# Bytes on the engine's disk for a byte of a wheel that is new to it, measured for efa-pytorch 2.15.0 in an empty
# engine (3.0 GB to download, 19 GB of engine data in the end): unpacked in the stage that installs it, in the stage of
# its layer and in the image, and compressed in the layer. Wheels that are there are shared, also unpacked.
NEW = 7
SYSTEM = 2 * disk.GB  # the system above the wheels, in its stages and in the image; 0.5 GB each
# The components that decide the wheels; an image of the engine with the same ones has brought them.
DECIDING = ("pytorch", "nccl", "cuda", "python")


def need(orders: Sequence[Order], engine: Engine) -> None:
    """Return when the engine's disk has room for building `orders`.

    Raises RdmaImagesError with what is needed, what is free, where, and the mend.
    """
    new = {w.sha256: w.size for order in orders if not _has_wheels(order, engine) for w in order.lock.wheels}
    size = NEW * sum(new.values()) + SYSTEM * len(orders)
    disk.need(size, f"building {', '.join(order.image.id for order in orders)}", _data(engine))


def _has_wheels(order: Order, engine: Engine) -> bool:
    """Whether an image of the engine was built of the same wheels, as far as labels tell."""
    parts = order.image.components
    labels = [f"label=io.rdma-images.component.{name}={parts[name].version}" for name in DECIDING if name in parts]
    filters = [word for label in labels for word in ("--filter", label)]
    return bool(_docker(engine, "image", "ls", "--quiet", *filters))


def _data(engine: Engine) -> Path | None:
    """Where the engine keeps its data, when that is a folder of this machine."""
    said = _docker(engine, "info", "--format", "{{.DockerRootDir}}")
    return Path(said) if engine.host.startswith("unix://") and said and Path(said).is_dir() else None


def _docker(engine: Engine, *arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], env=engine.environ(), capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
