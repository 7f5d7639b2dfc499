"""Assign wheels to the layers of an image."""

import re
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from rdma_images.core.sizes import format_megabytes
from rdma_images.inputs.wheels import Lock, Wheel, total_size

# A wheel of at least this size (bytes, as downloaded) is a layer of its own: shared, rebuilt, pushed, pulled by itself.
# For smaller ones a layer costs more than it saves. Of torch's wheels a dozen are larger, and some twenty smaller.
LARGE = 16 * 1024 * 1024


@dataclass(frozen=True)
class WheelLayer:
    """Wheels that are installed together, in a stage of their own."""

    stage: str  # "wheel-torch"
    wheels: tuple[Wheel, ...]

    @property
    def python(self) -> str | None:
        """Return the oldest Python that its wheels fit, "3.13"; None where any does.

        The layer depends only on this, so that images with different Pythons share it.
        """
        oldest = [version for wheel in self.wheels if (version := _python(wheel))]
        return "{}.{}".format(*max(oldest)) if oldest else None

    @property
    def comment(self) -> str:
        """Return the description of the layer in the Dockerfile."""
        if len(self.wheels) == 1:
            wheel = self.wheels[0]
            return f"# {wheel.name} {wheel.version}: {format_megabytes(total_size(self.wheels))} to download."
        small_wheels = f"{len(self.wheels)} wheels under {format_megabytes(LARGE)}, together"
        return f"# The {small_wheels}: {format_megabytes(total_size(self.wheels))} to download."


def wheel_layers(lock: Lock) -> tuple[WheelLayer, ...]:
    """Return the wheels of a lock as layers, in the image's order.

    What changes least lies lowest, because an engine that pulls must unpack again whatever lies above a changed layer:
    the vendor's libraries, then the small wheels, then torch, whose every release is new. Among equals the largest is
    first, so that a pull begins with what takes longest.
    """
    wheels = [w for w in lock.wheels if w not in lock.sources]
    large = [WheelLayer(f"wheel-{canonicalize_name(w.name)}", (w,)) for w in wheels if w.size >= LARGE]
    small = tuple(w for w in wheels if w.size < LARGE)
    shared_layer = [WheelLayer("wheels-small", small)] if small else []
    return tuple(
        sorted([*large, *shared_layer], key=lambda layer: (_change_rate(layer), -total_size(layer.wheels), layer.stage))
    )


def source_layers(lock: Lock) -> tuple[WheelLayer, ...]:
    """Return what is built and what lies beside matrix.yaml, which changes most, as layers."""
    fixed = tuple(wheel for wheel in lock.sources if not wheel.origin or wheel.origin.startswith("git+"))
    changing = tuple(wheel for wheel in lock.sources if wheel not in fixed)
    layers = (WheelLayer("wheels-from-source", fixed), WheelLayer("local-packages", changing))
    return tuple(layer for layer in layers if layer.wheels)


def _change_rate(layer: WheelLayer) -> int:
    """Return how often a layer changes, from seldom to always."""
    if layer.stage == "wheel-torch":
        return 2
    return 0 if layer.stage.startswith("wheel-nvidia") else 1


def _python(wheel: Wheel) -> tuple[int, int] | None:
    """Return Python's version in a wheel's tags, as 3.13 of "cp313-cp313"; None if they name no version."""
    matches = [re.fullmatch(r"[a-z]+(3)(\d+)", tag.interpreter) for tag in wheel.tags]
    return min(((int(match[1]), int(match[2])) for match in matches if match), default=None)
