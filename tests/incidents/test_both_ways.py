"""An image measured from inside and one read from its export have the same measurements."""

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rdma_images.inspection.inspection import ImageConfig
from rdma_images.validate import probe_files
from rdma_images.validate.probes import measure
from rdma_images.validate.probes.rootfs import Root
from tests.incidents.case import Incident, incidents
from tests.incidents.image import ElfLibrary, ImageFile, IncidentImage
from tests.incidents.run import MEMORY


def exported(data: bytes, image_config: ImageConfig, folder: Path) -> dict[str, Any]:
    """Return what is measured of an export, by probe."""
    answers: dict[str, Any] = json.loads(probe_files.encoded_answers(io.BytesIO(data), folder, image_config))
    return {name: answer["value"] for name, answer in answers.items()}


def unpacked(data: bytes, image_config: ImageConfig, folder: Path) -> dict[str, Any]:
    """Return what is measured of the same files on this machine's file system."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder)
    root = Root(str(folder))
    measured: dict[str, Any] = json.loads(measure.as_json(probe_files.measurements(root, image_config)))
    return measured


def compared(data: bytes, image_config: ImageConfig) -> dict[str, Any]:
    """Measure an image in both ways, and compare everything."""
    with tempfile.TemporaryDirectory(prefix="rdma-images-both-", dir=MEMORY) as folder:
        ways = Path(folder) / "export", Path(folder) / "unpacked"
        for way in ways:
            way.mkdir()
        outside, inside = exported(data, image_config, ways[0]), unpacked(data, image_config, ways[1])
    for measured in (outside, inside):
        libraries = measured["tree"]["files"]["libraries"]
        first = first_paths(libraries.items())
        for about in libraries.values():
            about["identity"] = first[about["identity"]]
    assert outside == inside
    return inside


def first_paths(libraries: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, str]:
    """Return the first path of each file by its identity."""
    return {about["identity"]: path for path, about in sorted(libraries, reverse=True)}


def needs_root(image: IncidentImage) -> bool:
    return any(file.owner or file.kind == "device" for file in image.files.values())


def runs_by_default(number: int, incident: Incident) -> bool:
    """Return whether a case runs without --exhaustive: one of three, and some more."""
    links = [path for path, file in incident.files.items() if file and file.link]
    return number % 3 == 0 or any("/bin/" in path for path in links)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if runs_by_default(number, incident) else pytest.mark.exhaustive)
        for number, (name, incident) in enumerate(incidents().items())
    ],
)
def test_an_incident_is_measured_the_same_in_both_ways(name: str) -> None:
    image = incidents()[name].image
    if needs_root(image) and os.geteuid():
        pytest.skip("files of other owners and devices need root")
    compared(image.tar(), image.subject(name))


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
        "/var/lib/dpkg/status": ImageFile(text="Package: libc6\nVersion: 2.41\n"),
        "/opt/amazon/efa_installed_packages": ImageFile(text="# EFA installer version: 1.45.0\n", size=33 << 20),
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


def test_what_is_rare_is_measured_the_same_in_both_ways() -> None:
    second = "/usr/lib/libnccl.so.2.27.7"
    measured = compared(with_second_name(ODD.tar(), "/usr/lib/libnccl.so.2", second), ODD.subject("odd"))
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
    assert files["libraries"][second]["identity"] == "/usr/lib/libnccl.so.2"
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
