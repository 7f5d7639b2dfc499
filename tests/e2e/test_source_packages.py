"""A package of CUDA code without a wheel, compiled by the toolkit in NVIDIA's wheels."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.build import source_wheels
from rdma_images.core import paths
from rdma_images.publish.destination import layers_repository
from tests.e2e import private_engine
from tests.e2e.publish_parts import Registry, registry_program
from tests.support import checkout, source_index
from tests.support.source_packages import make_spec

pytestmark = [pytest.mark.e2e, pytest.mark.part("engine"), private_engine.needs]

TARGET = "with-cuda-code"
ROWS = f"""
  {TARGET}:
    summary: PyTorch with a package of CUDA code
    fabric: efa
    template: efa-pytorch
    python-packages: [numpy, {source_index.NAME}]
    source-packages: [{source_index.NAME}]
    package-options:
      {source_index.NAME}: {{env: {{GREETING: "it's ours"}}, patch: greeting.patch, no-deps: nothing here tabulates}}
    default:
      base: debian13
      pytorch: 2.15.0
      efa-installer: 1.50.0
"""

PATCH = """\
--- a/setup.py
+++ b/setup.py
@@ -1,5 +1,7 @@

 import os
+with open("cuda_doubled.py", "a") as module:
+    module.write(f"greeting = {os.environ['GREETING']!r}\\n")
 import torch  # as many such packages do: nothing but the image has it
 from setuptools import setup
 from torch.utils.cpp_extension import BuildExtension, CUDAExtension
"""
SECOND = ROWS.replace(TARGET, f"{TARGET}-too").replace("[numpy, ", "[numpy, einops, ")


def invoke(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(project)}
    command = [sys.executable, "-m", "invoke", *words]
    return subprocess.run(command, cwd=project, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def layers(project: Path, target: str) -> list[str]:
    """Return the layers of a target's image."""
    (record,) = project.glob(f"build/images/{target}-[0-9]*/build.json")
    inspect = [
        "docker",
        "image",
        "inspect",
        json.loads(record.read_text())["ref"],
        "--format",
        "{{json .RootFS.Layers}}",
    ]
    shown = subprocess.run(inspect, env=engines.ensure().environ(), capture_output=True, check=True)
    digests: list[str] = json.loads(shown.stdout)
    return digests


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a copy of the checkout with the target, built with the package's own index."""
    folder = checkout.copied(tmp_path_factory.mktemp("source") / "project")
    with (folder / "matrix.yaml").open("a") as matrix:
        matrix.write(ROWS + SECOND)
    (folder / "greeting.patch").write_text(PATCH)
    with source_index.source_index() as address:
        (folder / "mirrors.yaml").write_text(f"sources:\n  index: {address}/\n")
        built = invoke(folder, "build", "--target", TARGET, "--rehearse", "--no-validate")
        assert built.returncode == 0, built.stderr[-4000:]
        yield folder
    engine = engines.ensure()
    listing = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", f"rdma-images/{TARGET}*"]
    names = subprocess.run(listing, env=engine.environ(), capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "image", "rm", *names], env=engine.environ(), capture_output=True, check=True)


def test_what_was_compiled_loads_beside_torch_and_has_code_for_the_gpus(project: Path) -> None:
    """cuobjdump is in no wheel: the names of the architectures are in the code."""
    program = (
        "import torch, cuda_doubled, _cuda_doubled; print(cuda_doubled.launches());"
        "code = open(_cuda_doubled.__file__, 'rb').read(); print(all(name in code for name in (b'sm_80', b'sm_90')))"
    )
    done = invoke(project, "run", "--target", TARGET, "--", "python", "-c", program)
    assert (done.returncode, done.stdout) == (0, "0\nTrue\n"), done.stderr


def test_a_package_is_built_with_its_variable_and_its_patch_and_without_its_requirements(project: Path) -> None:
    program = "import importlib.util as of, torch, cuda_doubled; print(cuda_doubled.greeting, of.find_spec('tabulate'))"
    done = invoke(project, "run", "--target", TARGET, "--", "python", "-c", program)
    assert (done.returncode, done.stdout) == (0, "it's ours None\n"), done.stderr


def test_the_image_has_no_compiler_and_the_package_is_installed_as_a_wheel(project: Path) -> None:
    script = (
        "! command -v g++ nvcc ninja && test ! -e /opt/build-tools && test ! -e /usr/local/cuda;"
        "ls /opt/venv/site-packages/cuda_doubled-1.0.dist-info"
    )
    done = invoke(project, "run", "--target", TARGET, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "RECORD" in done.stdout
    assert "direct_url.json" not in done.stdout


def test_another_target_takes_what_is_there(project: Path) -> None:
    """The compiled wheel, also with an empty BuildKit cache: the stages that compile are not even requested.

    The layers of its other wheels, of the base and of the fabric, too.
    """
    built = invoke(project, "build", "--target", f"{TARGET}-too", "--rehearse", "--no-validate")
    assert built.returncode == 0, built.stderr[-4000:]
    assert f"{source_index.NAME} {source_index.VERSION}: compiled before, taken from" in built.stderr
    assert "source-builder" not in built.stderr
    assert re.findall(r"making (\d+) layers of wheels", built.stderr) in ([], ["1"])  # einops', if nobody has made it
    first, second = layers(project, TARGET), layers(project, f"{TARGET}-too")
    assert len(set(second) - set(first)) <= 2  # of the small wheels, and of what lists all
    program = "import einops, torch, cuda_doubled"
    done = invoke(project, "run", "--target", f"{TARGET}-too", "--", "python", "-c", program)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("project")
def test_another_machine_takes_the_wheel_from_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel that was compiled here, Debian's docker-registry, and two state folders."""
    registry = Registry(registry_program(), tmp_path / "registry", password=False).start()
    repository = layers_repository(f"{registry.host}/cache/layers")
    wheel = next(source_wheels.root().glob("*/cuda_doubled-*.whl"))  # a used machine has several
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    spec, compiled = make_spec(), list[str]()

    def compile_stage(_image_id: str, stage: str, folder: Path) -> None:
        compiled.append(stage)
        shutil.copy(wheel, folder)

    for machine in ("first", "second"):
        monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / machine))
        contexts = source_wheels.provide_source_wheels(
            [spec], {spec.image.id: ()}, compile_stage, repository=repository
        )[spec.image.id]
        assert (Path(contexts["source-some-extension"]) / wheel.name).read_bytes() == wheel.read_bytes()
    assert compiled == ["source-some-extension"]
    registry.kill()
