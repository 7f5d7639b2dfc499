"""What the names in a Dockerfile stand for in one build: a pulled base, a bootstrapped one, a download, a stand-in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rdma_images import stand_ins
from rdma_images.bake import HelperTarget, bootstrapped
from rdma_images.facts import Facts
from rdma_images.model import Image, Source, Supply


@dataclass
class Pantry:
    """The helpers of one bake file, each there once whatever the number of images that use it."""

    facts: Facts
    download: Callable[[Source], Path]  # where the verified download of a source is, in a folder of its own
    base_tar: Callable[[str], Path]  # where the tar of a bootstrapped base is
    helpers: dict[str, HelperTarget] = field(default_factory=dict)
    users: dict[str, str] = field(
        default_factory=dict
    )  # helper -> id of an image that uses it, and whose secrets it gets

    def contexts(self, image: Image, supplies: Sequence[Supply]) -> dict[str, str]:
        """The contexts of an image's Dockerfile by name, in BuildKit's notation."""
        before = set(self.helpers)
        named = [one for one in supplies if one.source.context]
        bases = {str(one.source.context): self._base(one, image) for one in named if one.source.kind == "base"}
        rest = {
            str(one.source.context): self._download(one, image, bases["base"])
            for one in named
            if one.source.kind != "base"
        }
        self.users |= dict.fromkeys(self.helpers.keys() - before, image.id)
        return bases | rest

    def _base(self, one: Supply, image: Image) -> str:
        if one.via not in ("bootstrap", "stand-in"):
            return one.address
        tar = self.base_tar(one.address)
        if one.via == "stand-in" and "laid-over" in one.source.extra:
            return self._add(stand_ins.base(one.source, image, self.facts, tar))
        return self._add(bootstrapped(str(one.source.context), one.address, tar))

    def _download(self, one: Supply, image: Image, base: str) -> str:
        if one.via == "stand-in":
            return self._add(stand_ins.stand_in(one.source, image, self.facts, base))
        return str(self.download(one.source))

    def _add(self, helper: HelperTarget) -> str:
        self.helpers[helper.name] = helper
        return f"target:{helper.name}"
