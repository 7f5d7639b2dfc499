"""Requirements files of a target: what pip reads, and refusals with file and line."""

from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.inputs import lock
from rdma_images.plan import planner, requirements_file
from rdma_images.plan.matrix import Matrix, Target
from rdma_images.plan.requirements_file import Requirements

VERSIONS = {"pytorch": "2.15.0", "nccl": "2.30.7", "base": "debian13"}
TARGET = """
targets:
  mine:
    summary: mine
    fabric: efa
    template: efa-pytorch
    python-packages: [numpy]
    requirements: requirements.txt
    constraints: limits.txt
    default: {base: debian13, pytorch: 2.15.0, efa-installer: 1.50.0}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    return tmp_path


def read(folder: Path, text: str) -> Requirements:
    (folder / "requirements.txt").write_text(text)
    target = Target(summary="mine", fabric="efa", requirements="requirements.txt", default={})
    return requirements_file.read_requirements(target, VERSIONS)


def test_what_pip_takes_is_taken(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "base.txt").write_text("-c limits.txt\neinops\n")
    (folder / "more" / "limits.txt").write_text("protobuf<7\n")
    result = read(
        folder,
        "# what we train with\n\ntransformers[torch] >= 4.50 , <5 ; python_version > '3.9'  # the API of 4\n"
        "--requirement=more/base.txt\n-cmore/limits.txt\ntorch>=2.4\n"
        f"wandb==0.20.1 \\\n    --hash=sha256:{'ab' * 32} \\\n    --hash=sha256:{'cd' * 32}\n",
    )
    assert result.packages == ['transformers[torch]<5,>=4.50; python_version > "3.9"', "einops", "wandb==0.20.1"]
    assert result.constraints == ["protobuf<7", "protobuf<7"]
    assert result.hashes == {"wandb": ("ab" * 32, "cd" * 32)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("numpy\ntorch==2.4.0\n", "requirements.txt:2: torch==2.4.0, and the image has torch 2.15.0"),
        ("nvidia_nccl_cu13<2.20", "and the image has nvidia-nccl-cu13 2.30.7"),
        ("-e .", "requirements.txt:1: -e: not supported\nremove the line; mirrors.yaml"),
        ("--extra-index-url https://x.example/simple", "requirements.txt:1: --extra-index-url: not supported"),
        ("./wheels/x.whl", "requirements.txt:1: './wheels/x.whl': no such file or folder"),
        ("x @ https://x.example/x.whl", "is outside of the folder of matrix.yaml"),
        ("--no-binary :all:", "--no-binary: not supported"),
        ("a\\\n==\n", "requirements.txt:1: 'a =='"),
        ("-r absent.txt", "absent.txt: no such file"),
        ("-r requirements.txt", "includes itself"),
    ],
)
def test_what_cannot_be_is_refused_with_file_and_line(folder: Path, text: str, sentence: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read(folder, text)
    assert sentence in str(caught.value)
    assert "\n" in str(caught.value)


def test_a_target_has_them_beside_its_packages_and_its_lock_is_of_both(folder: Path) -> None:
    (folder / "requirements.txt").write_text("einops\n")
    (folder / "limits.txt").write_text("protobuf<7\n")
    target = yaml_file.loads(TARGET, Matrix, "matrix.yaml")
    (image,) = planner.plan(target, facts.load()).images
    request = lock.lock_request(image)
    assert {"numpy", "einops"} <= set(request.requirements)
    assert request.constraints == ("protobuf<7",)
    (folder / "limits.txt").write_text("protobuf<6\n")
    (other,) = planner.plan(target, facts.load()).images
    assert lock.lock_request(other).key != request.key
