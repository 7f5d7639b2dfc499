"""Which engine is used, and why an engine is not usable."""

import pathlib
import shutil

import pytest

from rdma_images import engine
from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import discovery, private


@pytest.mark.parametrize("version", ["24.0.0", "26.1.5+dfsg1", "v27.0.0-rc.1", "100.0"])
def test_a_docker_that_will_do(version: str) -> None:
    assert discovery.version_problem("Docker", version, discovery.DOCKER) is None


@pytest.mark.parametrize("version", ["23.0.6", "20.10.24+dfsg1", "", "dev"])
def test_a_docker_that_will_not_do(version: str) -> None:
    problem = discovery.version_problem("Docker", version, discovery.DOCKER)
    assert problem == f"Docker is {version}, and 24.0 or later is needed"


def test_no_docker_is_said_without_asking_anyone(no_choice: pathlib.Path) -> None:
    assert discovery.find_engine() == (None, f"there is no Docker at {no_choice}/docker.sock")


def test_a_chosen_engine_that_is_unreachable_is_never_replaced(
    no_choice: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{no_choice}/nobody.sock")
    with pytest.raises(RdmaImagesError, match=r"DOCKER_HOST names an engine that .*\nfix that, or unset DOCKER_HOST"):
        discovery.find_engine()


def test_a_context_that_cannot_be_used_is_left_by_dockers_own_command(
    no_choice: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_choice / "config.json").write_text('{"currentContext": "far"}')
    monkeypatch.setattr(discovery, "_docker", lambda *_: ("ssh://far", ""))
    with pytest.raises(RdmaImagesError, match=r"'far' names .*\nforward .*, or `docker context use default`$"):
        discovery.find_engine()


@pytest.mark.parametrize("chosen", [False, True])
def test_a_user_outside_of_dockers_group_is_told_so(
    no_choice: pathlib.Path, monkeypatch: pytest.MonkeyPatch, chosen: bool
) -> None:
    """Docker is there: to install it is no advice."""
    (no_choice / "docker.sock").touch()
    (no_choice / "config.json").write_text('{"currentContext": "farm"}' if chosen else "{}")
    raw = "permission denied while trying to connect to the Docker daemon socket at unix:///x: Get … permission denied"
    answers = {"context": ("unix:///x", ""), "info": ("", raw)}
    monkeypatch.setattr(discovery, "_docker", lambda command, *_: answers[command])
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/docker")
    monkeypatch.setattr(private, "obstacle", lambda: private.NEEDS_ROOT)
    monkeypatch.setattr(private, "running", lambda: None)
    with pytest.raises(RdmaImagesError) as caught:
        engine.ensure()
    first_line, fix = str(caught.value).splitlines()
    assert "this user may not open Docker's socket" in first_line
    assert len(first_line) <= 160
    assert fix.startswith("add this user to the socket's group, as with `sudo usermod -aG docker USER`, and log in")


@pytest.mark.usefixtures("no_choice")
def test_a_user_is_told_what_else_than_root_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "running", lambda: None)
    monkeypatch.setattr(private, "obstacle", lambda: private.NEEDS_ROOT)
    with pytest.raises(RdmaImagesError, match=r"needs root\n.*add this user to its group.* or run the command as root"):
        engine.ensure()
    monkeypatch.setattr(private, "obstacle", lambda: "this host is not Debian")
    with pytest.raises(RdmaImagesError, match=r"not Debian\n.*or set DOCKER_HOST$"):
        engine.ensure()


def test_an_engine_over_ssh_is_refused_before_its_host_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host may answer only after a question, as of its key, and the answer is the same."""
    answers = {"context": "ssh://user@host"}
    monkeypatch.setattr(discovery, "_docker", lambda command, *_: (answers[command], ""))
    assert discovery.inspect_engine() == (None, discovery.SSH)
