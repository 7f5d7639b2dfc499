"""Questions to an engine, by its socket or by the docker command."""

import subprocess
from collections.abc import Callable

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord
from rdma_images.engine import Engine, docker_command

BUILD = BuildRecord("mine-1", "rdma-images/mine:1", "sha256:1", "", (), "", 0.0)


@pytest.mark.parametrize(
    ("answer", "address", "line"),
    [
        ("sha256:1 rdma-images/mine:1\n", "rdma-images/mine:1", []),
        (
            "sha256:1\nsha256:2 rdma-images/mine:1\n",
            "sha256:1",
            ["the name rdma-images/mine:1 was given to another image; this folder's build is sha256:1"],
        ),
        ("sha256:1\n", "sha256:1", ["the name rdma-images/mine:1 is gone; this folder's build is sha256:1"]),
    ],
)
def test_the_name_serves_as_long_as_it_is_this_images(
    answer: str, address: str, line: list[str], answering_engine: Callable[..., Engine]
) -> None:
    said: list[str] = []
    assert docker_command.build_reference(BUILD, answering_engine(answer), "invoke build", said.append) == address
    assert said == line


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("", "the name rdma-images/mine:1 is gone"), ("sha256:2 rdma-images/mine:1\n", "was given to another image")],
)
def test_an_image_that_is_gone_is_refused(answer: str, reason: str, answering_engine: Callable[..., Engine]) -> None:
    with pytest.raises(RefusedError, match=f"{reason}\nrun `invoke build --target mine`"):
        docker_command.build_reference(BUILD, answering_engine(answer), "invoke build --target mine", pytest.fail)


def test_a_failed_list_is_tried_again(answering_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    removed = subprocess.CompletedProcess([], 1, "", "content digest sha256:3: not found")
    answers = iter([removed, subprocess.CompletedProcess([], 0, "sha256:1\n", "")])
    monkeypatch.setattr(docker_command, "run", lambda *_: next(answers))
    assert docker_command.images_with_labels(answering_engine(""), "mine") == ["sha256:1"]
