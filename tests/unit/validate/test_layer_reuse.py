"""When an image is taken to import torch as another one does, whose topmost layer alone is another."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rdma_images.engine.docker_command import Engine
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import (
    Files,
    ImportedTorch,
    Libraries,
    Measured,
    MeasuredPackages,
    PackageContents,
    StartedLibrary,
    StartedNetwork,
    Tree,
)
from rdma_images.validate import image_layers, layer_reuse
from rdma_images.validate.layer_reuse import EarlierMeasurement, is_harmless
from rdma_images.validate.probes import measure, pytorch, rootfs, tree

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
        member("workspace/tools/all_reduce_perf"),
        member("workspace/include/nccl.h"),
        member("workspace/mlx5.driver"),
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
    completed = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert {f'"{path}"' in completed.stdout for path in (real, link, "/srv/absent.conf", "/srv/libx.so")} == {True}
    assert "xxxx" not in completed.stdout
    assert '"/"' not in completed.stdout


def test_what_lies_below_another_is_left_out() -> None:
    paths = pytorch.searched_paths(["/a/b", "/a/b/c.so", "/a/b-c"])
    assert {"/a/b", "/a/b-c"} <= set(paths)
    assert "/a/b/c.so" not in paths


SYSTEM = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\ntrainer:x:1000:1000::/home/trainer:/bin/sh\n",
    "etc/group": "trainer:x:1000:\n",
    "usr/lib/libnccl.so.2": "no library",
    "root/.cache/pip/wheel": "cached",
    "var/open": "for all",
    "workspace/old.py": "print(1)\n",
    "home/trainer/.netrc": "machine example login a password b\n",
}


def image_tree(folder: Path, files: dict[str, str]) -> rootfs.Root:
    """Write the files of an image, of which those with "open" in their names may be written by all."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o666 if "open" in name else 0o4755 if name.endswith("python3") else 0o644)
    return rootfs.Root(str(folder))


def whole(root: rootfs.Root) -> Files:
    """Return the tree's files as they are measured."""
    summary = tree.summary(root.entries(), root)
    return Files.model_validate(summary)


def user_files(root: rootfs.Root) -> Files:
    """Return those that a changed script changes."""
    return Files.model_validate(measure.user_files(root))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"workspace/train.py": "print(2)\n" * 100, "workspace/a/b/c/d": "x", "srv/open": "y"},
        {"home/trainer/.netrc": "nothing"},
        {"home/trainer/.cache/pip/wheel": "cached", "home/trainer/bin/python3": "#!", "home/other/x": ""},
        {"workspace/key.pem": "-----BEGIN PRIVATE KEY-----\n" + "x" * 64},
    ],
    ids=str,
)
def test_a_tree_with_other_files_of_a_user_is_as_if_it_were_measured(changed: dict[str, str], tmp_path: Path) -> None:
    before = image_tree(tmp_path / "before", SYSTEM)
    after = image_tree(tmp_path / "after", SYSTEM | changed)
    libraries = Libraries(nccl={}, plugins={}, resolved={}, closures={}, verbs_looks_for={}, method="")
    torch = ImportedTorch(version="", cuda=None, file="", compiled_nccl="", nccl=[], mapped=[])
    measured = Tree(files=whole(before), libraries=libraries)
    earlier = EarlierMeasurement(torch=torch, tree=measured, user_files=user_files(before), request=None, network=None)
    merged = earlier.tree_with(user_files(after))
    assert merged
    assert without_identity(merged.files) == without_identity(whole(after))


def without_identity(files: Files) -> dict[str, object]:
    """Return what was measured without the numbers of files, which two folders do not share."""
    fields = files.model_dump()
    for about in fields["libraries"].values():
        about.pop("identity")
    return fields


@pytest.mark.parametrize(
    "added",
    [
        {"workspace/lib/libfabric.so.1": ""},
        {f"home/trainer/open{number}": "" for number in range(tree.MAX_ENTRIES)},
        {"workspace/data": "x" * 100},  # among the largest places, whose list is short: another may take its place
    ],
    ids=["library", "more than are listed", "large"],
)
def test_a_tree_of_which_not_all_is_known_is_measured_again(added: dict[str, str], tmp_path: Path) -> None:
    root = image_tree(tmp_path, SYSTEM | {f"opt/place{number}/x/y": "z" for number in range(60)} | added)
    assert not layer_reuse.is_separable(whole(root))


def test_the_plugins_answer_only_what_was_asked_of_them() -> None:
    torch = ImportedTorch(version="", cuda=None, file="", compiled_nccl="", nccl=[], mapped=[])
    started_network = StartedNetwork(plugins=[], libfabric=StartedLibrary(), verbs=StartedLibrary(), gpu=False)
    request = {"names": ("libnccl-net.so",), "environment": {"NCCL_NET": "Libfabric"}}
    earlier = EarlierMeasurement(
        torch=torch,
        tree=None,
        user_files=None,
        request={**request, "names": ["libnccl-net.so"]},
        network=started_network,
    )
    assert earlier.network_for(request) == started_network
    assert earlier.network_for(request | {"environment": {}}) is None


@pytest.mark.parametrize(
    ("path", "is_taken_over"), [("/opt/venv/bin:/usr/bin", True), ("/workspace/venv/bin:/usr/bin", False)]
)
def test_packages_and_tools_are_taken_over_unless_a_user_has_programs(
    path: str, is_taken_over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    monkeypatch.setattr(image_layers, "topmost_holds_only", lambda *_: True)
    torch = ImportedTorch(version="", cuda=None, file="", compiled_nccl="", nccl=[], mapped=[], searched=["/opt"])
    installed = MeasuredPackages(wheels={}, dpkg={"jq": "1"}, dpkg_sources={}, rpm={}, efa_installer="")
    measured = Measured(torch=torch, packages=installed, contents=PackageContents(), tools={})
    image = ImageConfig(
        ref="x",
        digest="sha256:1",
        platform="linux/amd64",
        labels={},
        environment={"PATH": path},
        user="",
        entrypoint=[],
        tags=[],
        bytes=0,
        created="",
        layers=["sha256:2"],
        history=[],
    )
    engine = Engine("x", "private", "unix:///x", "26.1", "0.13", "containerd", "default")
    layer_reuse.save(engine, image, measured, None)
    earlier = layer_reuse.find(engine, image)
    assert earlier
    assert set(earlier.values) == ({"torch", "packages", "contents", "tools"} if is_taken_over else {"torch"})
