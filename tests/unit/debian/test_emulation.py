"""What is foreign to this machine, and whether an emulator is registered: on a folder in binfmt_misc's place."""

from pathlib import Path

import pytest

from rdma_images.debian import bootstrap, emulation, host_apt
from rdma_images.inputs.sources import BUILD_PLATFORM

ARM = "linux/arm64"


@pytest.fixture
def registration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of arm64's registration, of an amd64 machine with Debian; it is not there."""
    monkeypatch.setattr(emulation, "REGISTRY", tmp_path)
    monkeypatch.setattr("rdma_images.debian.emulation.platform.machine", lambda: "x86_64")
    monkeypatch.setattr(host_apt, "debian", lambda: None)
    return tmp_path / "qemu-aarch64"


@pytest.mark.parametrize(
    ("platform", "foreign"), [(ARM, True), ("linux/amd64", False), (BUILD_PLATFORM, False), ("", False)]
)
def test_what_is_foreign_is_bootstrapped_where_an_emulator_is_registered(
    platform: str, foreign: bool, registration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdma_images.debian.bootstrap.shutil.which", lambda name: f"/usr/bin/{name}")
    assert emulation.is_foreign(platform) is foreign
    assert bootstrap.key("debian13", platform) == ("debian13-arm64" if foreign else "debian13")
    assert bootstrap.is_possible("debian13", platform) is not foreign
    registration.write_text("disabled\n")
    assert bootstrap.is_possible("debian13", platform) is not foreign
    registration.write_text("enabled\ninterpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P\nflags: POF\n")
    assert bootstrap.is_possible("debian13", platform)
