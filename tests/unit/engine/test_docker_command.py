"""Questions to an engine, by its socket or by the docker command."""

import pathlib
import subprocess
from typing import Any
from urllib.parse import unquote

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import Engine, daemon_api, docker_command


def test_images_are_listed_and_removed_by_the_engines_socket(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, str]] = []

    def send(_path: pathlib.Path, method: str, question: str, _seconds: float) -> Any:
        requests.append((method, unquote(question)))
        return [{"Id": "sha256:2"}]

    monkeypatch.setattr(daemon_api, "send", send)
    monkeypatch.setattr(docker_command, "run", lambda *_: pytest.fail("the docker command was started"))
    lab = Engine("lab", "existing", f"unix://{tmp_path}/x", "28", "0.13", "containerd", "default")
    assert docker_command.images_with_labels(lab, "a", "b=1") == ["sha256:2"]
    docker_command.remove_images(lab, "127.0.0.1:1/x:y")
    assert requests == [
        ("GET", '/images/json?filters={"label": ["a", "b=1"]}'),
        ("DELETE", "/images/127.0.0.1:1/x:y"),
    ]


@pytest.mark.parametrize(("times", "message"), [(2, "content digest sha256:1: not found"), (9, "cannot connect")])
def test_images_are_listed_while_somebody_removes_one(
    monkeypatch: pytest.MonkeyPatch, times: int, message: str
) -> None:
    answers = iter([subprocess.CompletedProcess((), 1, "", message)] * times)
    listed = subprocess.CompletedProcess((), 0, "sha256:2\nsha256:3\n", "")
    monkeypatch.setattr(docker_command, "run", lambda *_: next(answers, listed))
    lab = Engine("lab", "existing", "unix:///x", "28", "0.13", "containerd", "default")
    if times == 2:
        assert docker_command.images_with_labels(lab, "x") == ["sha256:2", "sha256:3"]
    else:
        with pytest.raises(RdmaImagesError, match=message):
            docker_command.images_with_labels(lab, "x")
        assert len(list(answers)) == times - 1
