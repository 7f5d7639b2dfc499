"""What an engine says of the platforms that it can build for."""

from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.engine import platforms
from rdma_images.engine.docker_command import Engine


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return an amd64 engine whose builder `arm` alone has an emulator."""
    monkeypatch.setattr("rdma_images.engine.platforms.platform.machine", lambda: "x86_64")
    arm, other = "echo 'Platforms: linux/amd64*, linux/arm64'", "echo 'Platforms:  linux/amd64'"
    listed = f"case $3 in arm) {arm};; stopped) ;; *) {other};; esac"
    (tmp_path / "docker").write_text(f"#!/bin/sh\n{listed}\n")
    (tmp_path / "docker").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return Engine("default", "existing", "unix:///docker.sock", "28", "0.29", "containerd", "default", environ)


def test_what_runs_there_is_built_there(engine: Engine) -> None:
    platforms.require_emulation(["linux/amd64"], engine, None)
    platforms.require_emulation(["linux/amd64", "linux/arm64"], engine, "arm")
    platforms.require_emulation(["linux/arm64"], engine, "stopped")


@pytest.mark.parametrize("builder", [None, "other"])
def test_what_does_not_run_there_is_refused_before_anything_is_downloaded(engine: Engine, builder: str | None) -> None:
    where = f"builder {builder}" if builder else "engine default"
    with pytest.raises(RefusedError, match=f"^{where}: it does not run programs of linux/arm64\nregister an emulator"):
        platforms.require_emulation(["linux/amd64", "linux/arm64"], engine, builder)


@pytest.mark.parametrize(("state", "expected"), [("enabled\n", True), ("disabled\n", False), (None, False)])
def test_an_emulator_that_the_kernel_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None, expected: bool
) -> None:
    monkeypatch.setattr(platforms, "REGISTRY", tmp_path)
    if state:
        (tmp_path / "qemu-aarch64").write_text(f"{state}interpreter /usr/bin/qemu-aarch64-static\n")
    assert platforms.has_emulator("linux/arm64") is expected


@pytest.mark.parametrize(
    ("platform", "foreign"), [("linux/arm64", True), ("linux/arm64/v8", True), ("linux/amd64", False), ("", False)]
)
@pytest.mark.usefixtures("engine")
def test_whose_programs_are_for_another_processor(platform: str, foreign: bool) -> None:
    assert platforms.is_foreign(platform) is foreign
