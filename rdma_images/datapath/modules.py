"""Find the files of a Debian kernel package that a set of modules needs, in the order to load them."""

import lzma
import re
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError

# What the guest needs beyond what Debian builds into its kernel. rdma_rxe asks the crypto layer for "crc32" by
# name, which no dependency says: without crc32_generic `rdma link add` fails with "No such file or directory".
KERNEL_MODULES = (
    "crc32c_generic",
    "virtio_blk",
    "virtio_net",
    "erofs",
    "overlay",
    "crc32_generic",
    "rdma_rxe",
    "rdma_ucm",
)

_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


def modules(tree: Path, names: tuple[str, ...] = KERNEL_MODULES) -> dict[str, bytes]:
    """Return the wanted modules and all they depend on, by name, as loadable bytes, each after what it needs.

    `tree` is a kernel's folder of modules (…/lib/modules/<release>). Debian ships them .xz; they are unpacked here,
    where that takes milliseconds, and not in an emulated guest. Raises RdmaImagesError naming a module not in `tree`.
    """
    files = {_name(path): path for path in tree.rglob("*.ko*")}
    loaded: dict[str, bytes] = {}
    for name in names:
        _add(name, files, loaded)
    return loaded


def _add(name: str, files: dict[str, Path], loaded: dict[str, bytes]) -> None:
    """Add the module and, before it, what it depends on. Kernel modules never depend on each other in a circle."""
    if name in loaded:
        return
    if name not in files:
        raise RdmaImagesError(
            f"the kernel has no module {name!r}\nchoose a Debian kernel that is not the cloud flavour"
        )
    content = files[name].read_bytes()
    if files[name].suffix == ".xz":
        content = lzma.decompress(content)
    for other in _dependencies(content):
        _add(other, files, loaded)
    loaded[name] = content


def _dependencies(module: bytes) -> list[str]:
    """Return the dependencies in the module's own .modinfo section."""
    match = _DEPENDS.search(module)
    return [name.replace("-", "_") for name in match[1].decode().split(",") if name] if match else []


def _name(path: Path) -> str:
    """Return a module's name as the kernel knows it: no suffixes, underscores."""
    return path.name.partition(".ko")[0].replace("-", "_")
