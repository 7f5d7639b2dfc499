"""What `invoke engine.prune` finds in an engine."""

import json

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import Engine, docker_command, prune
from rdma_images.engine.prune import EngineImage

ENGINE = Engine("private", "private", "unix:///x", "28.2", "0.24", "containerd", "host")


def test_every_name_of_wheels_layers_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    # A build that was ended between giving the layers their name and letting go of the one they were pulled by.
    names = ["127.0.0.1:4/rdma-images/wheels:runtime-1", "rdma-images/wheels:runtime-1"]
    inspected = [{"Id": "sha256:1", "RepoTags": names, "Config": {"Labels": {prune.LAYERS: "zstd"}}}]

    def docker(_: Engine, *arguments: str) -> str:
        labelled = f"label={prune.LAYERS}" in arguments
        return json.dumps(inspected) if "inspect" in arguments else "sha256:1\n" * labelled

    monkeypatch.setattr(docker_command, "output", docker)
    assert prune.superfluous(ENGINE, ["efa-1"]) == tuple(EngineImage("sha256:1", name, "") for name in names)


def test_an_image_that_a_container_uses_stays_and_the_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    # Docker 26.1 with the containerd store, as it answered when a shell was open in an image.
    answer = (
        "`docker image rm` failed on the engine private: Error response from daemon: conflict: unable to delete "
        "rdma-images/mine:1 (must be forced) - container 294beb78c052 is using its referenced image a0f6\nend what"
    )
    removed = []

    def docker(_: Engine, *arguments: str) -> str:
        if arguments[-1] == "rdma-images/mine:1":
            raise RdmaImagesError(answer)
        removed.append(arguments[-1])
        return ""

    monkeypatch.setattr(docker_command, "output", docker)
    mine, other = EngineImage("sha256:1", "rdma-images/mine:1", ""), EngineImage("sha256:2", "", "")
    assert prune.remove(ENGINE, (mine, other)) == {mine: "294beb78c052"}
    assert removed == ["sha256:2"]


def test_an_image_that_stays_for_another_reason_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def docker(_: Engine, *__: str) -> str:
        raise RdmaImagesError("`docker image rm` failed: Cannot connect to the Docker daemon\nstart it")

    monkeypatch.setattr(docker_command, "output", docker)
    with pytest.raises(RdmaImagesError, match="Cannot connect"):
        prune.remove(ENGINE, (EngineImage("sha256:1", "x", ""),))
