"""What `invoke engine.prune` finds in an engine."""

import json

import pytest

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
