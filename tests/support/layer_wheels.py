"""Wheels of a few files, made as a test wants them: well, or with one thing wrong."""

import base64
import hashlib
import ssl
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import Wheel
from rdma_images.layers import make_wheel_layer
from rdma_images.layers.blob import Blob

TIMES = (2020, 2, 2, 2, 2, 2)
BLOB = Blob("application/vnd.oci.image.layer.v1.tar+zstd", "sha256:1", "sha256:2", 3)
MIRRORS = Mirrors(Path(ssl.get_default_verify_paths().openssl_cafile))
RUNTIME, DEVEL = b"abc", b"d"
SIZE = len(RUNTIME + DEVEL)


def make(
    folder: Path,
    name: str = "thing",
    files: Mapping[str, bytes] | None = None,
    executable: tuple[str, ...] = (),
    record: Mapping[str, str] | None = None,
    twice: str = "",
) -> Path:
    """Return a wheel of version 1.0 in `folder`.

    `record` replaces lines of RECORD by path, an empty one leaves it out.
    """
    info = f"{name}-1.0.dist-info"
    members = {
        **({f"{name}/__init__.py": b"x = 1\n"} if files is None else files),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = {path: _line(path, content) for path, content in members.items()} | {f"{info}/RECORD": f"{info}/RECORD,,"}
    lines |= record or {}
    members[f"{info}/RECORD"] = "".join(f"{line}\n" for line in lines.values() if line).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in [*members.items(), *([(twice, b"other")] if twice else [])]:
            member = zipfile.ZipInfo(path, TIMES)
            member.external_attr = (0o100755 if path in executable else 0o100644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, content)
    return wheel


def locked(wheel: Path) -> Wheel:
    """Return the wheel as a lock has it."""
    content = wheel.read_bytes()
    return Wheel(
        name=wheel.name.partition("-")[0],
        version="1.0",
        file=wheel.name,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
    )


def index(folder: Path, *wheels: Path) -> str:
    """Return the address of a package index in `folder` that has these wheels."""
    for wheel in wheels:
        page = folder / wheel.name.partition("-")[0] / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text(
            f'<a href="{wheel.as_uri()}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}">{wheel.name}</a>'
        )
    return folder.as_uri()


def _line(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{path},sha256={digest},{len(content)}"


def fill(folder: Path) -> None:
    """Write a layer and its record, as the maker of a wheel's layer does."""
    (folder / "runtime").write_bytes(RUNTIME)
    (folder / "devel").write_bytes(DEVEL)
    make_wheel_layer.write_record(folder, BLOB, BLOB, {})
