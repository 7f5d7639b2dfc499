"""A package index of small wheels, and the mirrors that lead to it."""

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rdma_images.inputs.mirrors import Mirrors
from rdma_images.registry.credentials import Login
from tests.support.loopback import Answer, Site


def make_wheel(name: str, version: str, *requires: str, tag: str = "py3-none-any") -> tuple[str, bytes]:
    """Return a wheel's file name and content, as small as it can be."""
    distribution = name.replace("-", "_")
    about = f"{distribution}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{about}/METADATA", metadata)
        archive.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{about}/RECORD", "")
    return f"{distribution}-{version}-{tag}.whl", content.getvalue()


def publish(site: Site, name: str, *wheels: tuple[str, bytes]) -> None:
    links = "".join(
        f'<a href="/files/{file}#sha256={hashlib.sha256(body).hexdigest()}">{file}</a>' for file, body in wheels
    )
    page = f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
    site.answers[f"/simple/{name}/"] = Answer(page, headers={"Content-Type": "text/html"})
    site.answers |= {f"/files/{file}": Answer(body) for file, body in wheels}


def mirrors(site: Site, logins: Mapping[str, Login] | None = None) -> Mirrors:
    bundle = Path(__file__).parent / "none.pem"
    addresses = {"index": (f"{site.address}/simple", "mirrors.yaml")}
    return Mirrors(bundle, addresses, logins or {})


def make_sdist(folder: str, texts: Mapping[str, str]) -> bytes:
    """Return a source archive: these files, by their names in the folder."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for path, text in texts.items():
            member = tarfile.TarInfo(f"{folder}/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def make_source(name: str, version: str, requires: str) -> tuple[str, bytes]:
    """Return a source whose build imports torch, with older setuptools' requirements."""
    folder = f"{name}-{version}"
    backend = '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
    texts = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}.egg-info/requires.txt": f"{requires}\n\n[test]\nabsent\n",
        "pyproject.toml": backend,
        "setup.py": "import torch\n",
    }
    return f"{folder}.tar.gz", make_sdist(folder, texts)
