"""What `invoke engine.prune` finds in an engine."""

import json
import subprocess

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import ID_LABEL, LAYERS_LABEL, TARGET_LABEL
from rdma_images.engine import Engine, docker_command, prune
from rdma_images.engine.prune import EngineImage

ENGINE = Engine("private", "private", "unix:///x", "28.2", "0.24", "containerd", "host")


def done(words: object, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(str(words), int(bool(stderr)), stdout, stderr)


# Docker 26.1, where somebody removed an image meanwhile.
NO_IMAGE = "Error response from daemon: No such image: sha256:2\n"


def test_an_image_that_somebody_removes_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {"Id": "sha256:1", "RepoTags": ["rdma-images/mine:1"], "Config": {"Labels": {ID_LABEL: "mine-1"}}}
    monkeypatch.setattr(docker_command, "images_with_labels", lambda *_: ["sha256:1", "sha256:2"])
    monkeypatch.setattr(docker_command, "run", lambda *words: done(words, json.dumps([mine]), NO_IMAGE))
    images = prune.unused_images(ENGINE, ())
    assert images == (EngineImage("sha256:1", "rdma-images/mine:1", "mine-1"),)
    monkeypatch.setattr(docker_command, "run", lambda *words: done(words, "", NO_IMAGE))
    assert prune.remove(ENGINE, images) == {}


def test_an_engine_that_does_not_answer_is_no_engine_without_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_command, "images_with_labels", lambda *_: ["sha256:1"])
    monkeypatch.setattr(docker_command, "run", lambda *words: done(words, "[]", "Cannot connect to the Docker daemon"))
    with pytest.raises(RdmaImagesError, match="Cannot connect"):
        prune.unused_images(ENGINE, ())


def test_every_name_of_wheels_layers_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    # A build that was ended between giving the layers their name and letting go of the one they were pulled by.
    names = ["127.0.0.1:4/rdma-images/wheels:runtime-1", "rdma-images/wheels:runtime-1"]
    inspected = [{"Id": "sha256:1", "RepoTags": names, "Config": {"Labels": {LAYERS_LABEL: "zstd"}}}]

    labelled = {LAYERS_LABEL: ["sha256:1"]}
    monkeypatch.setattr(docker_command, "images_with_labels", lambda _, label: labelled.get(label, []))
    monkeypatch.setattr(docker_command, "run", lambda *words: done(words, json.dumps(inspected)))
    assert prune.unused_images(ENGINE, ["efa-1"]) == tuple(EngineImage("sha256:1", name, "") for name in names)


def test_an_image_whose_name_a_newer_one_took_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    current, former = (
        {"Id": digest, "RepoTags": names, "Config": {"Labels": {ID_LABEL: "efa-1"}}}
        for digest, names in (("sha256:1", ["rdma-images/efa:1"]), ("sha256:2", []))
    )
    monkeypatch.setattr(docker_command, "images_with_labels", lambda _, label: ["sha256:1"] * (label == ID_LABEL))
    monkeypatch.setattr(docker_command, "run", lambda *words: done(words, json.dumps([current, former])))
    assert prune.unused_images(ENGINE, ["efa-1"]) == (EngineImage("sha256:2", "", "efa-1"),)


def test_an_image_of_a_target_of_another_folder_is_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    inspected = [
        {
            "Id": f"sha256:{n}",
            "RepoTags": names,
            "Config": {"Labels": {ID_LABEL: f"{target}-1", TARGET_LABEL: target}},
        }
        for n, target, names in ((1, "efa", ["efa:1"]), (2, "mine", ["mine:1"]), (3, "mine", []))
    ]
    monkeypatch.setattr(docker_command, "images_with_labels", lambda _, label: ["sha256:1"] * (label == ID_LABEL))
    monkeypatch.setattr(docker_command, "run", lambda *words: done(words, json.dumps(inspected)))
    images = prune.unused_images(ENGINE, ())
    assert prune.in_other_targets(images, ["efa"]) == (EngineImage("sha256:2", "mine:1", "mine-1", "mine"),)


def test_an_image_that_a_container_uses_stays_and_the_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    # Docker 26.1 with the containerd store, as it answered when a shell was open in an image.
    answer = (
        "Error response from daemon: conflict: unable to delete rdma-images/mine:1 (must be forced) - "
        "container 294beb78c052 is using its referenced image a0f6"
    )
    removed = []

    def docker(*words: str) -> subprocess.CompletedProcess[str]:
        if words[-1] == "rdma-images/mine:1":
            return done(words, stderr=answer)
        removed.append(words[-1])
        return done(words)

    monkeypatch.setattr(docker_command, "run", docker)
    mine, other = EngineImage("sha256:1", "rdma-images/mine:1", ""), EngineImage("sha256:2", "", "")
    assert prune.remove(ENGINE, (mine, other)) == {mine: "294beb78c052"}
    assert removed == ["sha256:2"]


def test_an_image_that_stays_for_another_reason_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_command, "run", lambda *words: done(words, stderr="Cannot connect to the Docker daemon"))
    with pytest.raises(RdmaImagesError, match="Cannot connect"):
        prune.remove(ENGINE, (EngineImage("sha256:1", "x", ""),))


def test_the_cache_is_emptied_without_a_file_of_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """buildx makes a folder first, which it cannot on the full disk that is to be freed."""
    requests: list[tuple[object, ...]] = []
    monkeypatch.setattr(docker_command, "request", lambda *arguments: requests.append(arguments[1:]))
    assert prune.remove(ENGINE, (), cache=True) == {}
    assert requests == [("POST", "/build/prune?all=true", 3600.0)]
