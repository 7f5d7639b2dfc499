"""Questions to an engine, by its socket or by the docker command."""

import pathlib
from typing import Any
from urllib.parse import unquote

import pytest

from rdma_images.engine import Engine, daemon_api, docker_command


def test_images_are_listed_and_removed_by_the_engines_socket(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, str]] = []

    def answer(_path: pathlib.Path, question: str, _seconds: float, method: str) -> Any:
        requests.append((method, unquote(question)))
        return [{"Id": "sha256:2"}]

    monkeypatch.setattr(daemon_api, "request", answer)
    monkeypatch.setattr(docker_command, "run", lambda *_: pytest.fail("the docker command was started"))
    lab = Engine("lab", "existing", f"unix://{tmp_path}/x", "28", "0.13", "containerd", "default")
    assert docker_command.images_with_labels(lab, "a", "b=1") == ["sha256:2"]
    docker_command.remove_images(lab, "127.0.0.1:1/x:y")
    assert requests == [
        ("GET", '/images/json?filters={"label": ["a", "b=1"]}'),
        ("DELETE", "/images/127.0.0.1:1/x:y"),
    ]
