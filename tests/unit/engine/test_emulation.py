"""When an emulator is registered, and what is left alone, on a folder for binfmt_misc."""

from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.engine.debian import bootstrap, debian_packages, emulation, host_apt
from rdma_images.inputs.sources import BUILD_PLATFORM

ARM = "linux/arm64"
# As Linux 6.18 showed what Debian's and Docker's packages register.
DEBIANS = """enabled
interpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P
flags: POF
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""
OTHERS = {
    "another machine": DEBIANS.replace("b700", "f300"),  # RISC-V
    "big-endian": DEBIANS.replace("7f454c460201", "7f454c460202").replace("0200b700", "000200b7"),
    "by a file's name": "enabled\ninterpreter /usr/bin/python3\nflags: \nextension .pyc\n",
    "disabled": DEBIANS.replace("enabled", "disabled"),
    "more than a header has": DEBIANS.replace("b700\n", "b70001000000\n").replace("ffffff\n", "ffffffff\n"),
}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return binfmt_misc without a registration, for root of amd64 with a fetched emulator."""
    folder = tmp_path / "binfmt_misc"
    folder.mkdir()
    (folder / "register").touch()
    (folder / "status").write_text("enabled\n")
    monkeypatch.setattr(emulation, "REGISTRY", folder)
    monkeypatch.setattr("rdma_images.engine.debian.emulation.platform.machine", lambda: "x86_64")
    monkeypatch.setattr("rdma_images.engine.debian.emulation.os.geteuid", lambda: 0)
    monkeypatch.setattr(host_apt, "host_archives", lambda: None)
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    packages = debian_packages.cache_path("packages", emulation.PACKAGE)
    packages.mkdir(parents=True)
    (packages / debian_packages.MANIFEST).write_text(f'{{"{emulation.PACKAGE}": "1:10.0"}}')
    return folder


def registration_text(registry: Path) -> str:
    """Return what the kernel would show of the registration that was written.

    Linux prints the mask that it was given.
    """
    _, name, kind, offset, magic, mask, interpreter, flags = (registry / "register").read_text().split(":")
    assert (name, kind, offset, flags) == ("rdma-images-aarch64", "M", "", "F")
    plain = [part.replace("\\x", "") for part in (magic, mask)]
    return f"enabled\ninterpreter {interpreter}\nflags: F\noffset 0\nmagic {plain[0]}\nmask {plain[1]}\n"


def test_the_registration_is_debians_with_the_emulator_kept_open(registry: Path) -> None:
    lines: list[str] = []
    emulation.ensure(ARM, lines.append)
    ours, debians = (emulation.parse("x", text) for text in (registration_text(registry), DEBIANS))
    assert (ours.magic, ours.mask) == (debians.magic, debians.mask)
    assert ours.interpreter == str(debian_packages.cache_path("packages", "qemu-user", "usr", "bin", "qemu-aarch64"))
    assert lines == ["registering Debian's qemu for linux/arm64; `invoke engine.down` removes it"]


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_what_takes_other_programs_is_no_emulator(registry: Path, text: str) -> None:
    (registry / "theirs").write_text(text)
    emulation.ensure(ARM)
    assert (registry / "register").read_text()
    assert (registry / "theirs").read_text() == text


@pytest.mark.parametrize("text", [DEBIANS, DEBIANS.replace("fffeffffff", "fffcffffff")], ids=["exact", "wider"])
def test_where_something_is_registered_nothing_is_added_and_nothing_removed(registry: Path, text: str) -> None:
    (registry / "qemu-aarch64").write_text(text)
    emulation.ensure(ARM)
    assert emulation.unregister() is False
    assert (registry / "register").read_text() == ""
    assert (registry / "qemu-aarch64").read_text() == text


def test_only_the_registration_of_this_state_folder_is_removed(registry: Path) -> None:
    emulation.ensure(ARM)
    (registry / "rdma-images-aarch64").write_text(registration_text(registry))
    others = DEBIANS.replace("/usr/libexec", "/home/somebody/state/debian/packages/qemu-user/usr/bin")
    (registry / "rdma-images-x86_64").write_text(others)
    assert emulation.registered() == (ARM,)
    assert emulation.unregister() is True
    assert (registry / "rdma-images-aarch64").read_text() == "-1"  # which the kernel takes for: remove it
    assert (registry / "rdma-images-x86_64").read_text() == others


def test_obstacles_are_reported_before_anything_is_fetched(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian_packages, "fetch", lambda *_: pytest.fail("fetched"))

    def reason() -> str:
        with pytest.raises(RefusedError, match=r"^linux/arm64 cannot be emulated: .*\nregister an emulator") as error:
            emulation.ensure(ARM)
        return str(error.value).partition("\n")[0].partition("emulated: ")[2]

    monkeypatch.setattr("rdma_images.engine.debian.emulation.os.access", lambda *_: False)
    assert reason() == f"{registry} is read-only here"
    monkeypatch.setattr(emulation, "REGISTRY", registry / "none")
    assert reason() == f"this kernel has no binfmt_misc (no {registry}/none)"
    monkeypatch.setattr(host_apt, "host_archives", _no_debian)
    assert reason() == "the emulator is one of Debian's packages, but this host is not Debian"
    monkeypatch.setattr("rdma_images.engine.debian.emulation.os.geteuid", lambda: 1000)
    assert reason() == "registering an emulator needs root"


def test_a_kernel_that_does_not_take_it_is_reported(registry: Path) -> None:
    (registry / "register").unlink()
    (registry / "register").mkdir()
    with pytest.raises(RefusedError, match=r"linux/arm64 cannot be emulated: .* does not take it: .*\nregister"):
        emulation.ensure(ARM)


@pytest.mark.parametrize(
    ("platform", "foreign"), [(ARM, True), ("linux/amd64", False), (BUILD_PLATFORM, False), ("", False)]
)
@pytest.mark.usefixtures("registry")
def test_what_is_foreign_is_bootstrapped_where_it_can_be_emulated(
    platform: str, foreign: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdma_images.engine.debian.bootstrap.shutil.which", lambda name: f"/usr/bin/{name}")
    assert emulation.is_foreign(platform) is foreign
    assert bootstrap.key("debian13", platform) == ("debian13-arm64" if foreign else "debian13")
    assert bootstrap.is_possible("debian13", platform)
    monkeypatch.setattr(emulation, "obstacle", lambda _: "it cannot")
    assert bootstrap.is_possible("debian13", platform) is not foreign


def _no_debian() -> None:
    raise RdmaImagesError("this host is not Debian\ninstall Debian")
