"""What is typed, and what is answered when it makes no sense: one sentence, exit code 2, nothing asked of a network."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rdma_images.core.paths import PROJECT
from tests.support import task_server
from tests.support.publish_doubles import PageHandler, served

REGISTRIES = "registries:\n  team-ecr:\n    kind: ecr\n    account: '123456789012'\n    region: us-east-1\n"


@pytest.fixture(scope="module")
def server() -> Iterator[task_server.TaskServer]:
    with task_server.serving(PROJECT, os.environ) as running:
        yield running


@pytest.fixture
def invoke(tmp_path: Path, server: task_server.TaskServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    (tmp_path / "registries.yaml").write_text(REGISTRIES)

    def run(*words: str, registries: Path = tmp_path / "registries.yaml") -> subprocess.CompletedProcess[str]:
        return server.run(*words, environ=os.environ | {"RDMA_IMAGES_REGISTRIES": str(registries)})

    return run


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("publish", "--target", "efa-pytorch"), "say where to: --to NAME"),
        (("publish", "--target", "efa-pytorch", "--to", "team-erc"), "did you mean team-ecr?"),
        (("publish", "--target", "efa-pytroch", "--to", "team-ecr"), "did you mean efa-pytorch"),
        (("publish", "--to", "team-ecr", "--join", "--policy", "x", "--stargz"), "--join and --policy, --stargz do "),
        (("publish", "--to", "team-ecr", "--join", "--allow-failed", "x"), "--join and --allow-failed do not go "),
        (("verify", "--image", "efa-pytorch:latest"), "names no registry"),
        (("verify", "--image", "h.example/a:b", "--identity", "ci"), "belong together"),
        (("verify", "--image", "h.example/a:b", "--key", "none.pub"), "none.pub: no such file"),
        (("verify", "--image", "127.0.0.1:1@h.example/a:b"), "names no registry"),
        (("ci.matrix", "--changed-since", "0" * 40), "fetch the commit"),
    ],
)
def test_a_mistake_is_one_sentence(
    invoke: Callable[..., subprocess.CompletedProcess[str]], words: tuple[str, ...], answer: str
) -> None:
    completed = invoke(*words)
    output = completed.stdout + completed.stderr
    assert completed.returncode == 2, output
    assert answer in output
    assert "Traceback" not in output


def test_a_web_server_is_no_registry(invoke: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    with served(PageHandler) as host:
        completed = invoke("verify", "--image", f"{host}/a/b")
    assert completed.returncode == 1
    assert "check that a registry answers at this address" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_without_registries_the_example_is_named(
    invoke: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    completed = invoke("publish", "--to", "x", registries=tmp_path / "none.yaml")
    assert completed.returncode == 2
    assert "copy registries.example.yaml" in completed.stderr
