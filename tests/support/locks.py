"""Small locks for tests of rendering: wheels with names and versions, but without bytes."""

import re
from hashlib import sha256

from rdma_images.components.nccl import NcclDetails
from rdma_images.core.image import Image
from rdma_images.inputs import lock
from rdma_images.inputs.wheels import Lock, LockRequest, Tool, Wheel

MB = 1_000_000
TOOLS = {name: Tool(name=name, version="0.9.1", hashes=("a" * 64,)) for name in ("uv", *lock.BUILD_TOOLS)}


def wheel(name: str, version: str, size: int, ending: str = "-py3-none-any.whl") -> Wheel:
    """Return a wheel, or with the ending of a source one of those."""
    file = f"{name.replace('-', '_')}-{version}{ending}"
    return Wheel(name=name, version=version, file=file, sha256=sha256(file.encode()).hexdigest(), size=size)


def wheels(image: Image) -> Lock:
    """Return what an image has: NCCL, torch where it has one, and its own packages."""
    pinned = [
        wheel(image.details(NcclDetails).package, image.version("nccl"), 250 * MB),
        wheel("nvidia-cuda-runtime", "13.0.96", MB),
    ]
    if "pytorch" in image.components:
        cpython = f"cp{image.version('python').replace('.', '')}"
        pinned.append(
            wheel("torch", image.version("pytorch"), 900 * MB, f"-{cpython}-{cpython}-manylinux_2_28_x86_64.whl")
        )
    packages = {re.split(r"[=\[]", line)[0] for line in image.python_packages} - {pin.name for pin in pinned}
    pinned += [
        wheel(name, "1.0", MB, ".tar.gz" if name in image.source_packages else "-py3-none-any.whl") for name in packages
    ]
    return Lock(request=lock.lock_request(image), wheels=tuple(sorted(pinned, key=lambda pin: pin.name)))


def toolkit(image: Image) -> Lock:
    """Return what compiles for it."""
    request = LockRequest(requirements=image.toolkit, python="3.10", platform=image.platform)
    return Lock(request=request, wheels=tuple(wheel(line.partition("==")[0], "13.0.88", MB) for line in image.toolkit))
