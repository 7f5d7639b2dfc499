"""An image without Python is unpacked, and its files are read as those of a running one."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from rdma_images.validate import probe_files
from tests.incidents.image import ElfLibrary, ImageFile, IncidentImage

NCCL = ElfLibrary(soname="libnccl.so.2", words=("NCCL version 2.27.7+cuda12.8", "libnccl-net"))
ODD = IncidentImage(
    env={
        "PATH": "/opt/venv/bin:/usr/bin",
        "LD_LIBRARY_PATH": "/opt/empty:/opt/none",
        "LD_PRELOAD": "libpre.so",
        "NCCL_TOPO_FILE": "/opt/pipe",
        "SECRET_TOKEN": "0123",
    },
    files={
        "/etc/profile.d/site.sh": ImageFile(link="/srv/site/variables"),
        "/srv/site/variables": ImageFile(text="export NCCL_NET=Socket\r\n"),
        "/root/.bashrc": ImageFile(text="\n".join(f"NCCL_NET=IB{number}" for number in range(300))),
        "/opt/empty": ImageFile(kind="folder", mode="755"),
        "/opt/pipe": ImageFile(kind="fifo"),
        "/opt/.hidden/start.sh": ImageFile(text="NCCL_IB_DISABLE=1\n"),
        "/opt/venv/bin/python3": ImageFile(text="", mode="755"),
        "/opt/venv/lib/python3.12/site-packages": ImageFile(link="/opt/venv/site-packages"),
        "/opt/venv/site-packages/torch-2.9.1.dist-info/METADATA": ImageFile(
            text="Name: torch\r\nVersion: 2.9.1\r\n\r\n"
        ),
        "/opt/venv/site-packages/torch/lib/libtorch_cuda.so": ImageFile(library=ElfLibrary(needed=("libnccl.so.2",))),
        "/opt/venv/site-packages/torch/lib/libtorch_python.so": ImageFile(library=ElfLibrary()),
        "/opt/other/torch/lib/libtorch_cuda.so": ImageFile(library=ElfLibrary()),
        "/usr/bin/fi_info": ImageFile(library=ElfLibrary(needed=("libfabric.so.1",)), mode="755"),
        "/usr/bin/all_reduce_perf": ImageFile(text="#!/bin/sh\n", mode="755"),
        "/usr/lib/libnccl.so.2": ImageFile(library=NCCL),
        "/usr/lib/libpre.so": ImageFile(library=ElfLibrary(soname="libfirst.so")),
        "/usr/lib/libnccl-net.so": ImageFile(text="\x7fELF\x02\x01", size=4096),
        "/usr/lib/libcuda.so.1": ImageFile(kind="device"),
        "/var/lib/dpkg/status": ImageFile(text="Package: libc6\nVersion: 2.41\n"),
        "/opt/amazon/efa_installed_packages": ImageFile(text="# EFA installer version: 1.45.0\n", size=33 << 20),
        "/dev/shm/libnccl.so.2": ImageFile(library=NCCL),
    },
)


def with_second_name(data: bytes, path: str, name: str) -> bytes:
    """Return a tar in which a file has another name, too."""
    buffer = io.BytesIO(data)
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        member = tarfile.TarInfo(name.lstrip("/"))
        member.type, member.linkname = tarfile.LNKTYPE, path.lstrip("/")
        archive.addfile(member)
    return buffer.getvalue()


def test_what_is_rare_is_read(tmp_path: Path) -> None:
    second = "/usr/lib/libnccl.so.2.27.7"
    export = io.BytesIO(with_second_name(ODD.tar(), "/usr/lib/libnccl.so.2", second))
    answers = json.loads(probe_files.encoded_answers(export, tmp_path, ODD.subject("odd")))
    measured = {name: answer["value"] for name, answer in answers.items()}
    settings, files = measured["settings"], measured["tree"]["files"]
    libraries = measured["tree"]["libraries"]
    set_in = {setting["file"] for setting in settings["assigned"]}
    assert set_in == {"/etc/profile.d/site.sh", "/root/.bashrc"}
    assert settings["absent"] == ["/opt/none"]
    assert measured["packages"]["wheels"] == {"/opt/venv/site-packages": {"torch": "2.9.1"}}
    assert measured["packages"]["dpkg"] == {"libc6": "2.41"}
    assert measured["packages"]["efa_installer"] == "1.45.0"
    assert measured["system"]["environment"] == {
        name: value for name, value in ODD.env.items() if name == "PATH" or name.startswith(("LD_", "NCCL_"))
    }
    assert measured["system"]["machine"] == "x86_64"
    assert set(libraries["nccl"]) == {"/usr/lib/libnccl.so.2", second}
    assert files["library_files"][second]["identity"] == files["library_files"]["/usr/lib/libnccl.so.2"]["identity"]
    assert files["library_files"]["/usr/lib/libcuda.so.1"]["condition"] == "fifo"
    assert files["bytes"] > 33 << 20 > sum(path.lstat().st_blocks * 512 for path in tmp_path.rglob("*"))
    assert libraries["gpu_code"] == {"/usr/bin/all_reduce_perf": []}
    assert libraries["resolved"]["libpre.so"]["file"] == "/usr/lib/libpre.so"
    torch = [f"/opt/venv/site-packages/torch/lib/libtorch_{name}.so" for name in ("cuda", "python")]
    assert set(libraries["closures"]) == {
        *torch,
        "/usr/bin/fi_info",
        "/usr/lib/libnccl.so.2",
        second,
        "/usr/lib/libpre.so",
        "/usr/lib/libnccl-net.so",
    }


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [("a/x", tarfile.REGTYPE, ""), ("x", tarfile.LNKTYPE, "a/outside"), ("x", tarfile.LNKTYPE, "../outside")],
)
def test_no_link_leads_out_of_the_folder(name: str, kind: bytes, target: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member_name, member_kind, link in (("a", tarfile.SYMTYPE, str(tmp_path)), (name, kind, target)):
            member = tarfile.TarInfo(member_name)
            member.type, member.linkname = member_kind, link
            archive.addfile(member)
    buffer.seek(0)
    with pytest.raises(tarfile.ReadError, match="leads out of the tree"):
        probe_files.unpack(buffer, tmp_path / "files")
    assert not (tmp_path / "x").exists()
