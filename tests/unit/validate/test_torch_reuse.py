"""When an image is taken to import torch as another one does, whose topmost layer alone is another."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rdma_images.validate.probes import pytorch
from rdma_images.validate.torch_reuse import is_harmless

SEARCHED = ["/opt/venv/site-packages", "/workspace/lib", "/home/trainer/.config/start.py", "/usr/bin"]


def member(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, mode
    return info


@pytest.mark.parametrize(
    "info",
    [
        member("workspace/train.py"),
        member("./workspace/src/torch.py"),  # no process of the probes imports from there
        member("workspace", tarfile.DIRTYPE, 0o755),
        member("workspace/src/", tarfile.DIRTYPE, 0o755),
        member("workspace/latest", tarfile.SYMTYPE),
        member("home/trainer/config.yaml"),
    ],
    ids=lambda info: info.name,
)
def test_a_script_is_harmless(info: tarfile.TarInfo) -> None:
    assert is_harmless(info, SEARCHED)


@pytest.mark.parametrize(
    "info",
    [
        member("torch.py"),
        member("torch/__init__.py"),
        member("opt/venv/site-packages/torch.py"),
        member("usr/bin/python3"),
        member("workspace/lib/torch.py"),  # a folder that is searched
        member("workspace/lib", tarfile.SYMTYPE),  # in its place
        member("workspace/.wh.lib"),  # removes it
        member("workspace/.wh..wh..opq"),  # removes all of /workspace
        member("workspace", tarfile.SYMTYPE),
        member("workspace", tarfile.DIRTYPE, 0o700),
        member("home/trainer/.config", tarfile.DIRTYPE, 0o700),
        member("home/trainer/.config/start.py"),
        member("workspace/ops/libnccl.so.2"),
        member("workspace/ops/_C.cpython-313-x86_64-linux-gnu.so"),
        member("workspace/hard", tarfile.LNKTYPE),
    ],
    ids=lambda info: info.name,
)
def test_what_an_import_may_read_is_not(info: tarfile.TarInfo) -> None:
    assert not is_harmless(info, SEARCHED)


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
        "TOKEN": "/" + "x" * 40,
    }
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert {f'"{path}"' in done.stdout for path in (real, link, "/srv/absent.conf", "/srv/libx.so")} == {True}
    assert "xxxx" not in done.stdout
    assert '"/"' not in done.stdout


def test_what_lies_below_another_is_left_out() -> None:
    paths = pytorch.searched_paths(["/a/b", "/a/b/c.so", "/a/b-c"])
    assert {"/a/b", "/a/b-c"} <= set(paths)
    assert "/a/b/c.so" not in paths
