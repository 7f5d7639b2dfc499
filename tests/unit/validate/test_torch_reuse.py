"""When an image is taken to import torch as another one does, whose topmost layer alone is another."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import Engine
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import ImportedTorch, Measured
from rdma_images.validate import image_layers, torch_reuse
from rdma_images.validate.probes import pytorch

SEARCHED = ["/opt/venv/site-packages", "/workspace/lib", "/home/trainer/.config/start.py"]
ENGINE = Engine("x", "private", "unix:///x", "26.1", "0.13", "containerd", "default")
TORCH = ImportedTorch(version="", cuda=None, file="", compiled_nccl="", nccl=[], mapped=[], searched=SEARCHED)
Members = list[tuple[tarfile.TarInfo, bytes]]


def member(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, mode
    return info


@pytest.mark.parametrize(
    "info",
    [
        member("workspace/train.py"),
        member("./workspace/src/torch.py"),  # no process of the probes imports from there
        member("opt/app/src/model.py"),
        member("usr/local/bin/start.sh", mode=0o755),
        member("opt", tarfile.DIRTYPE, 0o755),
        member("workspace/src/", tarfile.DIRTYPE, 0o755),
        member("workspace/latest", tarfile.SYMTYPE),
        member("home/trainer/config.yaml"),
    ],
    ids=lambda info: info.name,
)
def test_a_script_changes_no_import_wherever_it_lies(info: tarfile.TarInfo) -> None:
    assert torch_reuse.effect(info, b"#!/b", SEARCHED) == ""


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (member("torch.py"), "/torch.py, which Python may import"),
        (member("torch/__init__.py"), "which Python may import"),
        (member("opt/venv/site-packages/torch.py"), "a part of a Python or its packages"),
        (member("opt/other/lib/python3/dist-packages/x.py"), "a part of a Python or its packages"),
        (member("opt/venv/x.pth"), "a part of a Python or its packages"),
        (member("usr/local/bin/python3"), "a part of a Python or its packages"),
        (member("opt/venv/pyvenv.cfg"), "a part of a Python or its packages"),
        (member("workspace/lib/torch.py"), "the import reads /workspace/lib"),
        (member("workspace/lib", tarfile.SYMTYPE), "the import reads /workspace/lib"),  # in its place
        (member("workspace", tarfile.SYMTYPE), "which Python may import"),
        (member("workspace/.wh.lib"), "removes /workspace/lib"),
        (member("workspace/.wh..wh..opq"), "removes /workspace/"),
        (member("home/trainer/.config/start.py"), "the import reads /home/trainer/.config/start.py"),
        (member("workspace/ops/libnccl.so.2"), "which the loader may load or read"),
        (member("etc/ld.so.conf.d/x.conf"), "which the loader may load or read"),
        (member("workspace/hard", tarfile.LNKTYPE), "which is no file, folder or link"),
    ],
    ids=lambda value: value.name if isinstance(value, tarfile.TarInfo) else "",
)
def test_what_an_import_may_read_is_named(info: tarfile.TarInfo, words: str) -> None:
    assert words in torch_reuse.effect(info, b"", SEARCHED)


def test_an_elf_file_is_known_by_its_content() -> None:
    assert "which the loader may load" in torch_reuse.effect(member("opt/app/tool"), b"\x7fELF", SEARCHED)


def test_what_python_and_the_environment_name_is_searched_under_both_names(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    (real / "some_module.py").write_text("")
    link.symlink_to(real)
    program = "import json, some_module; from rdma_images.validate.probes import pytorch as p;"
    program += "import os; os.chdir('/'); print(json.dumps(p.searched_paths(['/srv/libx.so'])))"
    environ = {
        **os.environ,
        "PYTHONPATH": f"{Path.cwd()}:{link}",
        "CONFIG": "/srv/absent.conf",
        "PATH": "/usr/local/bin",
        "TOKEN": "/" + "x" * 40,
    }
    completed = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert {f'"{path}"' in completed.stdout for path in (real, link, "/srv/absent.conf", "/srv/libx.so")} == {True}
    assert "xxxx" not in completed.stdout
    assert '"/usr/local/bin"' not in completed.stdout  # an import starts no program
    assert '"/"' not in completed.stdout


def test_what_lies_below_another_is_left_out() -> None:
    paths = pytorch.searched_paths(["/a/b", "/a/b/c.so", "/a/b-c"])
    assert {"/a/b", "/a/b-c"} <= set(paths)
    assert "/a/b/c.so" not in paths


def image(*layers: str, **variables: str) -> ImageConfig:
    """Return an image of these layers, lowest first."""
    return ImageConfig(
        ref="x",
        digest="sha256:1",
        platform="linux/amd64",
        environment=variables,
        layers=list(layers),
    )


@pytest.fixture
def topmost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Members:
    """Return what the topmost layer of every image holds, for a test to fill."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    members: Members = []

    def read(*_: object) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
        return iter(members)

    monkeypatch.setattr(image_layers, "topmost_members", read)
    return members


def test_an_image_with_the_same_lower_layers_takes_over_the_torch(topmost: Members) -> None:
    topmost.append((member("opt/app/src/model.py"), b"WIDT"))
    torch_reuse.save(ENGINE, image("a", "b"), Measured(torch=TORCH))
    assert torch_reuse.find(ENGINE, image("a", "c")) == (TORCH, torch_reuse.REUSED)
    for other in (image("x", "b"), image("a", "b", LD_PRELOAD="/x")):
        assert torch_reuse.find(ENGINE, other).torch is None
        assert "no image with the same lower layers" in torch_reuse.find(ENGINE, other).reason


def test_a_layer_that_matters_is_the_reason_to_import_torch_again(topmost: Members) -> None:
    torch_reuse.save(ENGINE, image("a", "b"), Measured(torch=TORCH))
    topmost.append((member("opt/app/libx.so"), b"\x7fELF"))
    torch, reason = torch_reuse.find(ENGINE, image("a", "c"))
    assert (torch, reason) == (None, "its topmost layer holds /opt/app/libx.so, which the loader may load or read")
    torch_reuse.save(ENGINE, image("z", "c"), Measured(torch=TORCH))
    topmost.clear()
    assert torch_reuse.find(ENGINE, image("z", "d")).torch is None


def test_an_engine_that_hands_out_no_layer_says_so(topmost: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_reuse.save(ENGINE, image("a", "b"), Measured(torch=TORCH))

    def refuse(*_: object) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
        raise RdmaImagesError("this engine does not hand out a layer alone")

    monkeypatch.setattr(image_layers, "topmost_members", refuse)
    assert topmost == []
    assert torch_reuse.find(ENGINE, image("a", "c")) == (None, "this engine does not hand out a layer alone")
