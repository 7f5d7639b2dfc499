"""The build contexts of one build: each is a pulled base, a bootstrapped base, a download or a stand-in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rdma_images.build import stand_ins
from rdma_images.core.pipeline import Image, Source, Supply
from rdma_images.facts import Facts
from rdma_images.render.bake import HelperTarget, bootstrap_helper


@dataclass
class Contexts:
    """The contexts and helper targets of one bake file; images that need the same helper target share it."""

    facts: Facts
    download: Callable[[Source], Path]  # where the verified download of a source is, in a folder of its own
    base_tar: Callable[[str, str], Path]  # where the tar of a bootstrapped base is, by its name and platform
    helpers: dict[str, HelperTarget] = field(default_factory=dict)
    # Helper target -> id of the image whose secrets it gets: the first image that uses it.
    users: dict[str, str] = field(default_factory=dict)

    def of(self, image: Image, supplies: Sequence[Supply]) -> dict[str, str]:
        """Return the contexts of an image's Dockerfile by name, in BuildKit's notation."""
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
        platform = one.source.extra["platform"]
        tar = self.base_tar(one.address, platform)
        if one.via == "stand-in" and "laid-over" in one.source.extra:
            return self._add(stand_ins.base(one.source, image, self.facts, tar))
        return self._add(bootstrap_helper(str(one.source.context), one.address, tar, platform))

    def _download(self, one: Supply, image: Image, base: str) -> str:
        if one.via == "stand-in":
            return self._add(stand_ins.stand_in(one.source, image, self.facts, base))
        return str(self.download(one.source))

    def _add(self, helper: HelperTarget) -> str:
        self.helpers[helper.name] = helper
        return f"target:{helper.name}"
