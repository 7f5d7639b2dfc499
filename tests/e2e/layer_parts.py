"""Real parts for the tests of layers: small images of the product's own making, and what BuildKit says it did."""

import json
import re
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from rdma_images import atomic, build, choice, lock, order, paths, render
from rdma_images.engine import Engine
from rdma_images.order import Order
from rdma_images.site import Site, site
from rdma_images.wheels import Lock, Wheel

numbers = count()


def wheel(name: str, torch: str, base: str) -> Wheel:
    """A wheel from the lock of efa-pytorch with that torch on that base."""
    (image,) = choice.images(site(), ["efa-pytorch"], False, [f"pytorch={torch}", f"base={base}"], True)
    return next(wheel for wheel in lock.load(image).wheels if wheel.name == name)


def standing(base: str, stand_in: str) -> Site:
    """This site, where a rehearsal of `base` stands on the Debian `stand_in`."""
    here = site()
    bases = here.facts.bases
    one = bases.bases[base].model_copy(update={"stand_in": stand_in})
    changed = bases.model_copy(update={"bases": {**bases.bases, base: one}})
    return replace(here, facts=replace(here.facts, bases=changed))


@dataclass
class Small:
    """efa-pytorch with few wheels: everything else is as the product has it."""

    engine: Engine

    def order(self, wheels: Sequence[Wheel], *changes: str, name: str = "small", here: Site | None = None) -> Order:
        """What building it means; with inputs of its own, so that it is built also where it is there."""
        here = here or site()
        (image,) = choice.images(here, ["efa-pytorch"], False, changes, True)
        whole = order.order(image, here, rehearse=True)
        few = Lock(asked=whole.lock.asked, wheels=tuple(wheels))
        none = Lock(asked=whole.lock.asked, wheels=())
        image = replace(image, id=f"test-{name}", tag=f"test-{name}")
        atomic.write(
            paths.image_folder(image.id) / "Dockerfile", render.render(image, few, none, lock.tools(), here.facts)
        )
        return replace(whole, image=image, lock=few, inputs=f"test {next(numbers)}")

    def build(self, made: Order, here: Site | None = None) -> str:
        """Build it; returns its name in the engine."""
        (done,) = build.build([made], here or site(), self.engine, build.options(True, "", "zstd", None, None))
        return done.ref

    def forget(self, name: str) -> None:
        """Remove the image of that name, where there is one."""
        ref = f"{build.REPOSITORY}/efa-pytorch:test-{name}-rehearsal"
        subprocess.run(["docker", "image", "rm", ref], env=self.engine.environ(), capture_output=True)

    def layers(self, ref: str) -> list[str]:
        """The digests of an image's layers, lowest first, as they are pushed."""
        saved = subprocess.Popen(["docker", "image", "save", ref], env=self.engine.environ(), stdout=subprocess.PIPE)
        blobs: dict[str, bytes] = {}
        with saved, tarfile.open(fileobj=saved.stdout, mode="r|") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() and member.size < 100_000 else None
                blobs[member.name] = file.read() if file else b""
        found = json.loads(blobs["index.json"])["manifests"][0]
        while "layers" not in found:
            found = json.loads(blobs["blobs/" + found["digest"].replace(":", "/")])
            found = found["manifests"][0] if "manifests" in found else found
        return [layer["digest"] for layer in found["layers"]]


def ran(log: str) -> set[str]:
    """The steps that BuildKit ran, from its plain record, without those that it had: "wheel-torch 1/1"."""
    titles = dict(re.findall(r"(?m)^#(\d+) \[(?:\S+ )?([\w-]+ +\d+/\d+)\] (?:RUN|COPY|ADD|WORKDIR)", log))
    had = set(re.findall(r"(?m)^#(\d+) CACHED$", log))
    return {re.sub(" +", " ", title) for number, title in titles.items() if number not in had}
