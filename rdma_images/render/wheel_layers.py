"""Which wheels become which layers of an image."""

import re
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from rdma_images.core.sizes import megabytes
from rdma_images.inputs.wheels import Lock, Wheel

# A wheel of at least this size (bytes, as downloaded) is a layer of its own: shared, rebuilt, pushed, pulled by itself.
# For smaller ones a layer costs more than it saves. Of torch's wheels a dozen are larger, and some twenty smaller.
LARGE = 16 * 1024 * 1024


@dataclass(frozen=True)
class Layer:
    """Wheels that are installed together, in a stage of their own."""

    stage: str  # "wheel-torch"
    wheels: tuple[Wheel, ...]

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def python(self) -> str | None:
        """The oldest Python that its wheels fit, "3.13"; None where any does.

        The layer depends only on this, so that images with different Pythons share it.
        """
        known = [found for wheel in self.wheels if (found := _python(wheel))]
        return "{}.{}".format(*max(known)) if known else None

    @property
    def comment(self) -> str:
        """What the layer is, for the Dockerfile's reader."""
        if len(self.wheels) == 1:
            wheel = self.wheels[0]
            return f"# {wheel.name} {wheel.version}: {megabytes(self.size)} to download."
        return (
            f"# The {len(self.wheels)} wheels under {megabytes(LARGE)}, together: {megabytes(self.size)} to download."
        )


def layers(lock: Lock) -> tuple[Layer, ...]:
    """The wheels of a lock as layers, in the image's order.

    What changes least lies lowest, because an engine that pulls must unpack again whatever lies above a changed layer:
    the vendor's libraries, then the small wheels, then torch, whose every release is new. Among equals the largest is
    first, so that a pull begins with what takes longest.
    """
    wheels = [w for w in lock.wheels if not w.is_source]
    large = [Layer(f"wheel-{canonicalize_name(w.name)}", (w,)) for w in wheels if w.size >= LARGE]
    small = tuple(w for w in wheels if w.size < LARGE)
    together = [Layer("wheels-small", small)] if small else []
    return tuple(sorted([*large, *together], key=lambda layer: (_pace(layer), -layer.size, layer.stage)))


def _pace(layer: Layer) -> int:
    """How often a layer changes, from seldom to always."""
    if layer.stage == "wheel-torch":
        return 2
    return 0 if layer.stage.startswith("wheel-nvidia") else 1


def _python(wheel: Wheel) -> tuple[int, int] | None:
    """Python's version in a wheel's tags: "cp313-cp313" needs 3.13, "cp312-abi3" 3.12 or later, "py3-none" any 3."""
    found = [re.fullmatch(r"[a-z]+(3)(\d+)", tag.interpreter) for tag in wheel.tags]
    return min(((int(match[1]), int(match[2])) for match in found if match), default=None)
