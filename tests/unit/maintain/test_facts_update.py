"""Reading facts again: a real uv, and an index on the loopback interface."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from rich.console import Console

from rdma_images import facts
from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import silent
from rdma_images.facts.gpu_software import Torch
from rdma_images.inputs import mirrors
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.maintain.facts_update import Update, nccl_wheels, pages, torch_wheels
from rdma_images.maintain.facts_update import index_client as asking
from rdma_images.maintain.facts_update.index_client import IndexClient
from rdma_images.maintain.facts_update.pages import ReleaseNews
from rdma_images.maintain.facts_update.reading import Reading, add_rows, update_table
from tests.support.loopback import Answer, Site, serve

FACTS = facts.load()
NEW = Reading("torch.yaml", "2.16.0", {"cuda": "13.4", "python": ("3.12", "3.13")})


def library(*symbols: str) -> bytes:
    """Return the shape of a libnccl.so.2: code, strings, device code."""
    strings = b"\0".join(symbol.encode() for symbol in symbols)
    return b"\x7fELF" + b"\x90" * 5000 + strings + b"\0" * 5000


STRINGS = ("ncclNetPlugin_v11", "ncclCollNetPlugin_v10", "ncclNetPlugin_v12", "ncclTunerPlugin_v6", "ncclProfiler_v6")


def test_interfaces_of_a_library() -> None:
    interfaces = nccl_wheels.library_interfaces(io.BytesIO(library(*STRINGS)))
    assert interfaces == {"net": (11, 12), "tuner": (6,)}


def test_a_symbol_between_two_chunks_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_wheels, "CHUNK", 100)
    assert nccl_wheels.library_interfaces(io.BytesIO(library(*STRINGS)))["net"] == (11, 12)


class WheelIndex:
    """A package index of wheels that are made here."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.files: dict[str, dict[str, bytes]] = {}

    def add(
        self,
        name: str,
        version: str,
        tag: str = "py3-none-any",
        requires: tuple[str, ...] = (),
        content: dict[str, bytes] | None = None,
    ) -> None:
        stem = f"{name.replace('-', '_')}-{version}"
        dist = f"{stem}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        files = (content or {}) | {
            f"{dist}/METADATA": "\n".join(lines).encode() + b"\n",
            f"{dist}/WHEEL": f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
            f"{dist}/RECORD": b"",
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
            for path, data in files.items():
                wheel.writestr(path, data)
        self.files.setdefault(name, {})[f"{stem}-{tag}.whl"] = buffer.getvalue()
        self._publish(name)

    def _publish(self, name: str) -> None:
        links = ""
        for file, data in self.files[name].items():
            self.site.answers[f"/files/{file}"] = Answer(data)
            links += f'<a href="/files/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>\n'
        page = f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
        self.site.answers[f"/simple/{name}/"] = Answer(page, headers={"Content-Type": "text/html"})


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WheelIndex]:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(asking, "PYTHONS", ("3.11", "3.12"))  # the wheels made here are for no older one
    with serve() as site:
        yield WheelIndex(site)


@pytest.fixture(scope="module")
def mirror_settings() -> Mirrors:
    return mirrors.load(environ={})


@pytest.fixture
def index(packages: WheelIndex, mirror_settings: Mirrors) -> IndexClient:
    return IndexClient(f"{packages.site.address}/simple/", mirror_settings)


def release_torch(packages: WheelIndex, version: str = "2.16.0") -> None:
    """Serve a torch for two pythons, with the pin of cuDNN on one architecture only."""
    packages.add("cuda-toolkit", "13.4.1")
    packages.add("nvidia-cudnn-cu13", "9.30.0.1")
    packages.add("nvidia-nccl-cu13", "2.33.1")
    pins = (
        "cuda-toolkit==13.4.1",
        "nvidia-nccl-cu13==2.33.1",
        'nvidia-cudnn-cu13==9.30.0.1; platform_machine=="x86_64"',
    )
    for tag in ("cp312-cp312", "cp313-cp313", "cp313-cp313t"):
        for machine in ("x86_64", "aarch64"):
            packages.add("torch", version, f"{tag}-manylinux_2_28_{machine}", pins)


def test_a_new_torch_is_read_from_its_metadata(packages: WheelIndex, index: IndexClient) -> None:
    release_torch(packages)
    (reading,) = torch_wheels.readings(index, FACTS)
    assert reading.version == "2.16.0"
    assert reading.values == {
        "cuda": "13.4",
        "cudnn": "9.30.0.1",
        "nccl": "2.33.1",
        "python": ("3.12", "3.13"),
        "nccl-on": ("linux/amd64", "linux/arm64"),
    }


def test_a_new_nccl_is_read_from_its_wheel(packages: WheelIndex, index: IndexClient) -> None:
    for major in (12, 13):
        tag = "py3-none-manylinux_2_18_x86_64"
        content = {"nvidia/nccl/lib/libnccl.so.2": library(*STRINGS)}
        packages.add(f"nvidia-nccl-cu{major}", "2.33.1", tag, content=content)
    (reading,) = nccl_wheels.readings(index, FACTS, silent)
    assert reading.values == {"cuda": ("12", "13"), "net": ("11", "12"), "tuner": ("6",)}


def test_no_index(mirror_settings: Mirrors) -> None:
    nobody = IndexClient("file:///nowhere/simple/", mirror_settings)
    with pytest.raises(RdmaImagesError, match="torch was not found in the package registry"):
        nobody.unknown("torch", "2.2.0", (), ["3.13"])


def test_a_new_row_leaves_the_rest_as_it_was(tmp_path: Path) -> None:
    before = (paths.FACTS / "torch.yaml").read_text()
    (tmp_path / "torch.yaml").write_text(before)
    values: dict[str, str | tuple[str, ...]] = {
        "cuda": "13.0",
        "cudnn": "9.24.0.44",
        "nccl": "2.30.7",
        "python": ("3.12",),
        "nccl-on": ("linux/amd64",),
    }
    reading = Reading("torch.yaml", "2.14.2", values)
    add_rows(tmp_path, [reading], date(2026, 12, 24))
    after = (tmp_path / "torch.yaml").read_text()
    read = yaml_file.loads(after, Torch, "torch.yaml")
    assert list(read.releases)[:3] == ["2.15.0", "2.14.2", "2.14.1"]
    assert read.releases["2.14.2"].cudnn == "9.24.0.44"
    assert read.sources["wheel"].read == date(2026, 12, 24)
    added = set(after.splitlines()) - set(before.splitlines())
    assert len(added) == 3, "the version, its values, and the date"


def test_versions_on_the_makers_pages() -> None:
    html = "<table><tr><th>Version</th></tr><tr><td>\n<p>1.52.0</p></td><td>to 2.8.0</td></tr><tr><td>1.51.0</td></tr>"
    assert pages.first_cells(html) == ["1.52.0", "1.51.0"]
    answer = json.dumps([{"tag_name": "v1.23.0"}, {"tag_name": "v1.13.2-aws"}, {"name": "v1.24.0rc1"}])
    assert pages.tag_names(answer) == ["1.23.0", "1.13.2"]


@pytest.mark.parametrize(
    ("answer", "newer", "error"),
    [
        (Answer(b"<tr><td>1.52.0</td></tr><tr><td>1.51.0</td></tr>"), ("1.52.0",), ""),
        (Answer(b"<tr><td>1.51.0</td></tr>"), (), ""),
        (Answer(b"<p>moved</p>"), (), "lists no version"),
        (Answer(status=404), (), "not read: answered 404 Not Found"),
    ],
)
def test_what_a_page_says(
    monkeypatch: pytest.MonkeyPatch, mirror_settings: Mirrors, answer: Answer, newer: tuple[str, ...], error: str
) -> None:
    with serve() as site:
        site.answers["/page"] = answer
        page = pages.ReleasePage(
            "efa-installer",
            f"{site.address}/page",
            pages.first_cells,
            lambda all_facts: list(all_facts.efa_installer.releases),
        )
        monkeypatch.setattr(pages, "PAGES", (page,))
        (news,) = pages.news(FACTS, mirror_settings)
    assert news.newer == newer
    assert error in news.error


def test_the_table_says_what_is_new() -> None:
    update = Update(
        (NEW,), (ReleaseNews("efa-installer", "https://a", ("1.52.0",)), ReleaseNews("x", "https://b", (), "no"))
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(update_table(update, written=True))
    text = console.export_text()
    assert "2.16.0 added to facts/torch.yaml: cuda 13.4, python 3.12 3.13" in text
    assert "efa-installer: https://a names 1.52.0" in text
