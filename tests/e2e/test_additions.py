"""A user's files and settings, built by BuildKit on a small base that has the same uid."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images import facts
from rdma_images.build import project_files
from rdma_images.core import paths, templates, yaml_file
from rdma_images.engine import Engine
from rdma_images.engine.debian import bootstrap
from rdma_images.plan import planner
from rdma_images.plan.matrix import Matrix
from tests.e2e import validated

pytestmark = [pytest.mark.e2e, pytest.mark.part("small-images")]
BASE = "rdma-images-test/additions:base"
MATRIX = """
targets:
  mine:
    summary: mine
    fabric: efa
    template: efa-pytorch
    files: [train.sh, {path: src, to: /opt/src, owner: root}]
    env: {WORDS: 'a "quoted" $HOME \\ and ${PATH}'}
    user: {name: trainer, uid: 1000, keep-setuid: [/usr/bin/su]}
    command: ./train.sh 'two words'
    default: {base: debian13, pytorch: 2.15.0, efa-installer: 1.50.0}
"""
SCRIPT = """#!/bin/sh
id
printf '%s\\n' "$WORDS" "$1" "$HOME" "$PWD"
touch ./mine "$HOME/mine"
stat -c '%n %u:%g %a %Y' train.sh /opt/src /opt/src/module.py
getent passwd 1000
find / -xdev -type f -perm /6000 2>/dev/null || true # not every folder may be read
"""
# Caches of torch, Triton and Hugging Face are in the home or in /tmp. Docker's tmpfs does not execute without `exec`,
# and Triton loads what it has compiled from there.
READ_ONLY = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
READ_ONLY += [f"--tmpfs={folder}:exec,uid=1000,gid=1000" for folder in ("/tmp", "/home/nonroot", "/workspace")]
IMPORT = """
import os, torch
from torch._inductor.runtime.cache_dir_utils import cache_dir
from triton import knobs
for folder in (cache_dir(), knobs.cache.dir, torch.hub.get_dir(), os.path.expanduser("~/.cache/huggingface"), "."):
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, "written"), "w").close()
print(os.getuid(), torch.compile(lambda x: x * 2 + 1, backend="eager")(torch.ones(2)).tolist())
"""


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engines.ensure()


@pytest.fixture(scope="module")
def base_with_user(engine: Engine) -> Iterator[str]:
    """Build an image with a user 1000, as Ubuntu 24.04's base has it.

    Where this `RUN` stood beside the tested stage, it ran again and changed its layer's times whenever another test had
    emptied the builder's cache.
    """
    account = "echo 'ubuntu:x:1000:1000::/home/ubuntu:/bin/bash' >> /etc/passwd && echo 'ubuntu:x:1000:' >> /etc/group"
    command = ["docker", "import", str(bootstrap.base_tar("debian13")), BASE]
    subprocess.run(command, env=engine.environ(), check=True, capture_output=True)
    with validated.derived(f"FROM {BASE}\nRUN {account}\n", "with-user") as ref:
        yield ref
    subprocess.run(["docker", "image", "rm", BASE], env=engine.environ(), check=True, capture_output=True)


def test_the_stage_makes_files_user_and_command(
    engine: Engine, base_with_user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "build" / "images")
    (image,) = planner.plan(yaml_file.loads(MATRIX, Matrix, "matrix.yaml"), facts.load()).images
    stage = templates.environment(paths.data_folders("dockerfiles")).get_template("stages/additions.j2")
    dockerfile = f"FROM {base_with_user} AS with-user\n" + stage.render(
        previous="with-user", stage="image", additions=image.additions
    )
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "module.py").write_text("x = 1\n")
    (tmp_path / "train.sh").write_text(SCRIPT)
    (tmp_path / "train.sh").chmod(0o755)
    project_files.pack(image)
    with validated.derived(dockerfile, "additions", paths.image_folder(image.id)) as ref:
        run = ["docker", "run", "--rm", "--network=none", ref]
        lines = subprocess.run(
            run, env=engine.environ(), capture_output=True, text=True, check=True
        ).stdout.splitlines()
        inspected = ["docker", "image", "inspect", ref, "--format", "{{json .RootFS.Layers}}"]
        first = json.loads(subprocess.run(inspected, env=engine.environ(), capture_output=True, check=True).stdout)
        (tmp_path / "train.sh").write_text(SCRIPT + "\n")
        project_files.pack(image)
        with validated.derived(dockerfile, "additions", paths.image_folder(image.id)):
            second = json.loads(subprocess.run(inspected, env=engine.environ(), capture_output=True, check=True).stdout)
    assert lines == [
        "uid=1000(trainer) gid=1000(trainer) groups=1000(trainer)",
        'a "quoted" $HOME \\ and ${PATH}',
        "two words",
        "/home/trainer",
        "/workspace",
        "train.sh 1000:1000 755 0",
        "/opt/src 0:0 755 0",
        "/opt/src/module.py 0:0 644 0",
        "trainer:x:1000:1000::/home/trainer:/bin/bash",
        "/usr/bin/su",
    ]
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]


def test_torch_runs_as_a_user_on_a_read_only_root(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "build" / "images")
    text = MATRIX.partition("    files:")[0] + "    user: nonroot\n    default:" + MATRIX.partition("    default:")[2]
    (image,) = planner.plan(yaml_file.loads(text, Matrix, "matrix.yaml"), facts.load()).images
    stage = templates.environment(paths.data_folders("dockerfiles")).get_template("stages/additions.j2")
    dockerfile = stage.render(previous=validated.good_image(), stage="image", additions=image.additions)
    paths.image_folder(image.id).mkdir(parents=True)
    with validated.derived(dockerfile, "nonroot", paths.image_folder(image.id)) as ref:
        run = ["docker", "run", "--rm", "--network=none", *READ_ONLY, ref, "python", "-c", IMPORT]
        done = subprocess.run(run, env=engine.environ(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1000 [3.0, 3.0]\n"), done.stderr
