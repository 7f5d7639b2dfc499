"""The parts around the probes: untrusted answers, limits, the loader worked out from files, fabrics guessed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from requests.exceptions import ReadTimeout

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Component, Image
from rdma_images.inspection.inspection import HistoryStep, Inspection
from rdma_images.inspection.machine import Devices, RdmaDevice
from rdma_images.inspection.measurements import Measured
from rdma_images.validate import computed_loader, container, transport
from rdma_images.validate.computed_loader import ComputedLoader
from rdma_images.validate.expected_fabric import image_expectations
from rdma_images.validate.image_config import hide_secret_values
from rdma_images.validate.probes.rootfs import Root
from rdma_images.validate.run_probes import parse_answers
from tests.incidents import elf_files
from tests.incidents.image import loader_cache

CASE = Path(__file__).parents[2] / "data" / "cases" / "efa-pytorch.json"


def case() -> Inspection:
    return Inspection.model_validate_json(CASE.read_bytes())


def test_answers_of_another_form_are_lost_with_a_reason() -> None:
    answers = {"torch": {"value": {"version": 3}}, "system": {"value": None, "error": "it crashed"}, "tools": {}}
    inspection = parse_answers(json.dumps(answers).encode(), ("torch", "system", "tools", "tree"))
    assert "expected form" in inspection.missing["torch"]
    assert inspection.missing["system"] == "it crashed"
    assert inspection.missing["tools"] == "tools has no value"
    assert inspection.missing["tree"] == "the image's answer leaves it out"
    assert set(inspection.failed) == set(inspection.missing)


def test_what_is_not_there_is_not_lost() -> None:
    inspection = parse_answers(b'{"torch": {"value": null, "error": "", "seconds": 0.1}}', ("torch",))
    assert (inspection.missing, inspection.failed) == ({"torch": "the image has no torch"}, ())


def test_a_command_ends_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    rc, _, _ = transport.run_with_limits([sys.executable, "-c", "import time; time.sleep(60)"], 0.3, None)
    assert rc == transport.TIMED_OUT
    rc, _, _ = transport.run_with_limits(["sh", "-c", "exec >&- 2>&-; sleep 60"], 0.3, None)  # nothing left to read
    assert rc == transport.TIMED_OUT
    monkeypatch.setattr(transport, "MAX_OUTPUT_BYTES", 1 << 16)
    rc, out, _ = transport.run_with_limits([sys.executable, "-c", "while True: print('y' * 4096)"], 30, None)
    assert rc == transport.ENDLESS
    assert len(out) < 1 << 18
    assert transport.run_with_limits([sys.executable, "-c", "raise SystemExit(3)"], 30, None)[0] == 3


def test_a_way_in_that_is_not_there() -> None:
    with pytest.raises(RdmaImagesError, match="is not on the PATH"):
        transport.run_with_limits(["no-such-program"], 1, None)
    with pytest.raises(RdmaImagesError, match="kubectl://"):
        transport.host("carrier-pigeon://x", 1)
    assert transport.host("local://", 10).run("echo %s", "a b").stdout == "a b\n"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Files among which the loader chooses."""
    library(tmp_path, "/opt/a/libx.so.1.2", needed=("liby.so.1", "libgone.so.1"))
    library(tmp_path, "/usr/lib/liby.so.1")
    library(tmp_path, "/opt/b/libx.so.1")
    library(tmp_path, "/opt/old/lib.so", needed=("libx.so.1",), rpath="$ORIGIN/../b")
    library(tmp_path, "/opt/new/lib.so", needed=("libx.so.1",), runpath="$ORIGIN/../a", rpath="$ORIGIN/../b")
    for path, target in {"opt/a/libx.so.1": "libx.so.1.2", "lib": "usr/lib", "loop": "/loop"}.items():
        (tmp_path / path).symlink_to(target)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(loader_cache({"/opt/a/libx.so.1": "libx.so.1"}))
    return Root(str(tmp_path))


def library(folder: Path, path: str, **about: Any) -> None:
    """Write a library at a path below a folder."""
    file = folder / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(elf_files.library(**about))


def test_the_loader_worked_out(root: Root) -> None:
    computed = ComputedLoader(root, {}, "x86_64")
    assert computed.find("libx.so.1") == "/opt/a/libx.so.1.2"
    assert computed.find("liby.so.1") == "/usr/lib/liby.so.1"
    assert computed.find("libx.so.1", "/opt/old/lib.so") == "/opt/b/libx.so.1"
    assert computed.find("libx.so.1", "/opt/new/lib.so") == "/opt/a/libx.so.1.2"
    assert computed.find("/opt/b/libx.so.1") == "/opt/b/libx.so.1"
    assert computed.needed_by("/opt/a/libx.so.1.2") == ({"liby.so.1": "/usr/lib/liby.so.1"}, ["libgone.so.1"])
    assert root.real("/loop/x").startswith("/loop")


@pytest.mark.parametrize(
    ("loader_in", "expected"), [("/usr/lib/x86_64-linux-gnu", "/opt/x/libx.so.1"), ("/usr/lib64", "")]
)
def test_the_loader_knows_the_folder_that_it_lies_in(tmp_path: Path, loader_in: str, expected: str) -> None:
    # The link led nowhere when ldconfig ran, as it does where its file is in another layer.
    library(tmp_path, "/opt/x/libx.so.1")
    for folder in ("usr/lib64", "usr/lib/x86_64-linux-gnu"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("usr/lib64")
    (tmp_path / "usr/lib/x86_64-linux-gnu/libx.so").symlink_to("/opt/x/libx.so.1")
    if loader_in != "/usr/lib64":
        (tmp_path / "usr/lib64/ld-linux-x86-64.so.2").symlink_to(f"{loader_in}/ld-linux-x86-64.so.2")
    assert ComputedLoader(Root(str(tmp_path)), {}, "x86_64").find("libx.so") == expected


def test_a_library_path_comes_before_a_runpath_and_after_an_rpath(root: Root) -> None:
    computed = ComputedLoader(root, {"LD_LIBRARY_PATH": "/opt/b"}, "x86_64")
    assert computed.find("libx.so.1", "/opt/new/lib.so") == "/opt/b/libx.so.1"
    assert computed.find("libx.so.1") == "/opt/b/libx.so.1"
    assert computed.without_path(["libx.so.1"]) == {"libx.so.1": "/opt/a/libx.so.1.2"}


def test_a_cache_that_is_real_and_ones_that_are_not() -> None:
    path = Path("/etc/ld.so.cache")
    if path.exists():
        assert any(name.startswith("libc.so") for name in computed_loader.cache(path.read_bytes()))
    assert computed_loader.cache(b"") == {}
    assert computed_loader.cache(computed_loader.CACHE_MAGIC + b"\xff" * 60) == {}


def test_the_fabric_is_known_said_or_guessed() -> None:
    inspection = case()
    parts = {"nccl": Component("nccl", "2.30.7", "matrix")}
    image = Image(id="i", target="t", tag="t", fabric="erdma", platform="linux/amd64", axes={}, components=parts)
    assert image_expectations(inspection.subject, inspection.measured, image).reason == "as planned"
    assert image_expectations(inspection.subject, inspection.measured, None).reason == "its label says efa"
    bare = inspection.subject.model_copy(update={"labels": {}})
    guessed = image_expectations(bare, inspection.measured, None)
    assert guessed.fabric == "efa"
    assert "/opt/amazon/efa" in guessed.reason
    assert image_expectations(bare, Measured(), None).fabric is None
    hca = bare.model_copy(update={"environment": {"NCCL_IB_HCA": "erdma_0"}})
    assert image_expectations(hca, Measured(), None).fabric == "erdma"
    devices = Devices.model_construct(rdma={"rocep0s1": RdmaDevice.model_construct(driver="erdma")})
    assert image_expectations(bare, Measured(devices=devices), None).fabric == "erdma"


def test_a_case_survives_its_json() -> None:
    assert Inspection.model_validate_json(case().model_dump_json()) == case()
    assert json.loads(CASE.read_text())["measured"]["torch"]["nccl"]


def test_a_report_does_not_repeat_a_secret() -> None:
    token = "ghp_" + "a" * 36
    about = case().subject.model_copy(
        update={
            "environment": {"PATH": "/bin", "REGISTRY_TOKEN": "x1", "PIP_CONFIG_FILE": "/etc/pip.conf"},
            "labels": {"note": token},
            "history": [HistoryStep(made_by=f"RUN curl -H {token}", bytes=1), HistoryStep(made_by="RUN true", bytes=2)],
        }
    )
    report_text = hide_secret_values(about).model_dump_json()
    assert "x1" not in report_text
    assert token not in report_text
    assert "/etc/pip.conf" in report_text
    assert "RUN true" in report_text


def test_a_removal_that_takes_a_busy_engine_minutes_is_left_to_it() -> None:
    def remove() -> None:
        raise ReadTimeout("read timeout=60")

    container.remove_quietly(remove)
