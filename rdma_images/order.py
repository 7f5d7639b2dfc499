"""An image to build, with everything that decides its bytes, found out without asking the network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from rdma_images import atomic, lock, paths, plan, render, sources, stand_ins, supply
from rdma_images.engine import Progress, bootstrap, silent
from rdma_images.facts import Facts
from rdma_images.mirrors import Mirrors
from rdma_images.model import Image, Source
from rdma_images.site import Site
from rdma_images.wheels import Lock


@dataclass(frozen=True)
class Order:
    """An image and what it is made of. Equal `inputs` are equal bytes: the same image need not be built again."""

    image: Image
    lock: Lock
    facts: Facts = field(repr=False)
    inputs: str  # "sha256:…"

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """All that the image downloads; asked where one builds, since uv and pip take 0.5 s to name their index."""
        return sources.sources(self.image, self.facts)

    @property
    def dockerfile(self) -> Path:
        """Where its Dockerfile is."""
        return paths.image_folder(self.image.id) / "Dockerfile"


def order(
    image: Image, site: Site, rehearse: bool = False, compression: str = "zstd", progress: Progress = silent
) -> Order:
    """What building `image` means; writes plan.json and Dockerfile, and locks its wheels where nobody has yet."""
    wheels = _locked(image, site.mirrors, progress)
    dockerfile = render.render(image, wheels, _toolkit(image, site.mirrors, progress), lock.tools(), site.facts)
    wanted = sources.pinned(image, site.facts)
    made_of = {
        "dockerfile": dockerfile,
        "pins": {source.id: source.pin for source in wanted},
        "bases": _bases(wanted),
        "platform": image.platform,
        "settings": {setting.what: setting.value for setting in image.settings},
        "compression": compression,
        "stand-ins": stand_ins.digest(_replaceable(wanted)) if rehearse else None,
    }
    plan.write(image)
    atomic.write(paths.image_folder(image.id) / "Dockerfile", dockerfile)
    digest = sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    return Order(image, wheels, site.facts, f"sha256:{digest}")


def _locked(image: Image, mirrors: Mirrors, progress: Progress) -> Lock:
    try:
        return lock.load(image)
    except lock.NotLockedError:
        progress(f"locking the wheels of {image.id}")
        return lock.lock(image, mirrors)


def _toolkit(image: Image, mirrors: Mirrors, progress: Progress) -> Lock:
    try:
        return lock.toolkit(image)
    except lock.NotLockedError:
        progress(f"locking what compiles {image.id}")
        return lock.lock_toolkit(image, mirrors)


def _bases(wanted: Sequence[Source]) -> dict[str, str]:
    """The bootstrapped bases as they are on this machine."""
    names = {source.extra["bootstrap"] for source in wanted if "bootstrap" in source.extra}
    made = {name: bootstrap.known(name) for name in names}
    return {name: base.tar if base else "not made yet" for name, base in made.items()}


def _replaceable(wanted: Sequence[Source]) -> set[str]:
    """The folders of the stand-ins that a rehearsal has for these sources."""
    return {stand_ins.folder(source) for source in wanted if supply.has_stand_in(source)}
