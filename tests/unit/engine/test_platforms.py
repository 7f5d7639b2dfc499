"""What an engine says of the platforms that it can build for."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.engine import platforms
from rdma_images.engine.debian import emulation
from rdma_images.engine.docker_command import Engine


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return an amd64 engine whose builder `arm` alone has an emulator."""
    monkeypatch.setattr("rdma_images.engine.debian.emulation.platform.machine", lambda: "x86_64")
    monkeypatch.setattr(emulation, "ensure", lambda *_: pytest.fail("an emulator for somebody else's engine"))
    arm, other = "echo 'Platforms: linux/amd64*, linux/arm64'", "echo 'Platforms:  linux/amd64'"
    listed = f"case $3 in arm) {arm};; stopped) ;; *) {other};; esac"
    (tmp_path / "docker").write_text(f"#!/bin/sh\n{listed}\n")
    (tmp_path / "docker").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return Engine("default", "existing", "unix:///docker.sock", "28", "0.29", "containerd", "default", environ)


def test_what_runs_there_is_built_there(engine: Engine) -> None:
    platforms.require(["linux/amd64"], engine, None)
    platforms.require(["linux/amd64", "linux/arm64"], engine, "arm")
    platforms.require(["linux/arm64"], engine, "stopped")


@pytest.mark.parametrize("builder", [None, "other"])
def test_what_does_not_run_there_is_refused_before_anything_is_downloaded(engine: Engine, builder: str | None) -> None:
    where = f"builder {builder}" if builder else "engine default"
    with pytest.raises(RefusedError, match=f"^{where}: it does not run programs of linux/arm64\nregister an emulator"):
        platforms.require(["linux/amd64", "linux/arm64"], engine, builder)


def test_the_private_engine_is_given_an_emulator_and_a_builder_is_not(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    monkeypatch.setattr(emulation, "ensure", lambda name, _: requests.append(name))
    private = replace(engine, kind="private")
    platforms.require(["linux/amd64", "linux/arm64"], private)
    assert requests == ["linux/arm64"]
    monkeypatch.setattr(emulation, "obstacle", lambda _: None)
    for name in ("linux/amd64", "linux/arm64"):
        platforms.emulate(name, private)
        platforms.emulate(name, engine)
    assert requests == ["linux/arm64"] * 2
    monkeypatch.setattr(emulation, "obstacle", lambda _: "it cannot")
    platforms.emulate("linux/arm64", private)
    platforms.require(["linux/arm64"], private, "arm")
    with pytest.raises(RefusedError, match="builder other: it does not run"):
        platforms.require(["linux/arm64"], private, "other")
    assert requests == ["linux/arm64"] * 2
