"""Run a program of unpacked Debian packages with its own libraries, whatever libc the host has."""

from collections.abc import Iterable
from pathlib import Path

LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"


def command(packages: Path, program: str) -> tuple[str, ...]:
    """Return the start of a command line for `program` ("usr/bin/tar") of the packages unpacked in `packages`."""
    libraries = packages / LIBRARIES
    return (str(packages / LOADER), "--library-path", str(libraries), str(packages / program))


def bundled_files(packages: Path, programs: Iterable[str], libraries: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of programs and of their libraries, by the path at which the loader finds them in a guest."""
    files = {f"bin/{Path(program).name}": (packages / program).read_bytes() for program in programs}
    files |= {f"lib/{name}": (packages / LIBRARIES / name).read_bytes() for name in libraries}
    return files | {"lib64/ld-linux-x86-64.so.2": (packages / LOADER).read_bytes()}
