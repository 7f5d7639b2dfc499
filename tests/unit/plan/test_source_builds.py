"""Python packages without a wheel: their compilers, GPUs and stages."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image, SourceBuild
from rdma_images.plan import matrix, planner
from rdma_images.plan.matrix import Matrix, PackageOptions
from rdma_images.render import dockerfiles
from tests.support import locks
from tests.support.source_packages import planned_image

FACTS = facts.load()
TWELVE = max(version for version, release in FACTS.torch.releases.items() if release.cuda.startswith("12."))


def stage(image: Image, name: str) -> str:
    """Return one stage of the image's Dockerfile, with its comment."""
    text = dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS)
    (stage_text,) = [part for part in re.split(r"\n\n(?=# |FROM )", text) if f" AS {name}\n" in part]
    return stage_text


def test_code_is_compiled_for_the_gpus_of_the_fabric_by_the_toolkit_of_its_cuda() -> None:
    image = planned_image("some-extension")
    assert {"sm_80", "sm_90", "sm_100"} <= set(image.source_architectures)
    assert f"nvidia-cuda-nvcc=={image.version('cuda')}.*" in image.toolkit
    builder = stage(image, "source-builder")
    capabilities = re.search(r'TORCH_CUDA_ARCH_LIST="(.*)\+PTX" CUDAARCHS="(.*)"', builder)
    assert capabilities
    assert [f"sm_{capability.replace('.', '')}" for capability in capabilities[1].split(";")] == list(
        image.source_architectures
    )
    assert capabilities[2].split(";") == [name.removeprefix("sm_") for name in image.source_architectures]
    assert "--mount=type=bind,from=cuda-toolkit" in stage(image, "build-some-extension")
    assert "nvcc" not in stage(image, "with-source-packages")


def test_a_component_without_wheels_is_compiled_without_being_named() -> None:
    image = planned_image(target="efa-pytorch", options=None, **{"nccl": "2.31.2", "gdrcopy": "2.6", "deep-ep": "2.0"})
    assert (image.source_packages, list(image.no_deps)) == (("deep-ep",), ["deep-ep"])
    assert image.toolkit
    assert image.source_architectures
    assert "libibverbs-dev" in image.source_builds["deep-ep"].debian_packages


def test_one_gpu_is_compiled_for_alone_and_named_in_the_tag() -> None:
    image = planned_image("flash-attn", gpu="sm_90")
    assert image.source_architectures == ("sm_90",)
    assert image.tag.endswith("-sm_90")
    assert 'TORCH_CUDA_ARCH_LIST="9.0+PTX" CUDAARCHS="90"' in stage(image, "source-builder")
    assert "export FLASH_ATTN_CUDA_ARCHS='90'\n" in stage(image, "build-flash-attn")
    every = planned_image("flash-attn")
    assert image.core_hours["flash-attn"] * len(every.source_architectures) == every.core_hours["flash-attn"] > 5
    assert not replace(image, python_packages=("flash-attn @ ./x.whl#sha256=0",)).core_hours
    ours = matrix.load().target("efa-pytorch").model_copy(update={"source_packages": ("flash-attn",)})
    (refusal,) = planner.plan(Matrix(targets={"own": ours}), FACTS, changes={"gpu": "sm_110"}).refusals
    assert [broken.rule for broken in refusal.broken] == ["gpu-of-fabric"]


def test_a_package_gets_the_variables_and_the_memory_that_its_build_wants() -> None:
    image = planned_image("flash-attn", "some-extension")
    build, plain_build = (stage(image, f"build-{name}") for name in ("flash-attn", "some-extension"))
    numbers = ";".join(name.removeprefix("sm_") for name in image.source_architectures)
    assert f"export FLASH_ATTN_CUDA_ARCHS='{numbers}'\n" in build
    assert "FLASH" not in plain_build
    assert f"int($2 / 1048576 / {image.source_builds['flash-attn'].memory})" in build
    assert "int($2 / 1048576 / 4)" in plain_build


MATRIX_TEXT = """\
targets:
  own:
    summary: of a user
    fabric: efa
    python-packages: [numpy]
    source-packages: [flash-attn]
    default: {{base: debian13, pytorch: 2.15.0, efa-installer: 1.50.0}}
{options}
"""
PATCH = """\
--- a/setup.py
+++ b/setup.py
@@ -1,2 +1,2 @@
-timeout = 10
+timeout = 100
 name = "$HOME"
"""


@pytest.fixture
def patch_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    file = tmp_path / "own.patch"
    file.write_text(PATCH)
    return file


def test_variables_of_the_targets_own_are_added_to_those_that_are_known() -> None:
    own = PackageOptions(env={"MAX_JOBS": "2", "FLASH_ATTN_CUDA_ARCHS": "it's 90"})
    image = planned_image("flash-attn", "some-extension", options={"flash-attn": own})
    build = stage(image, "build-flash-attn")
    assert "export FLASH_ATTENTION_FORCE_BUILD='TRUE'\n" in build
    assert "export FLASH_ATTN_CUDA_ARCHS='it'\\''s 90'\n" in build
    assert "MAX_JOBS='2'" not in stage(image, "build-some-extension")
    assert image.source_builds["flash-attn"].memory == planned_image("flash-attn").source_builds["flash-attn"].memory


def test_a_patch_is_applied_to_the_source_of_its_package(patch_file: Path) -> None:
    image = planned_image("some-extension", "other", options={"some-extension": PackageOptions(patch=patch_file.name)})
    build = stage(image, "build-some-extension")
    assert f"COPY <<'PATCH' /some-extension.patch\n{PATCH}PATCH\n" in build
    assert "sha256sum /sdist/* /some-extension.patch;" in build
    assert build.index("patch --batch") < build.index('mv /build/unpacked/* "$source"')
    assert "patch" not in stage(image, "build-other")


@pytest.mark.parametrize(("name", "words"), [("gone.patch", "no such file"), ("../own.patch", "outside of the folder")])
@pytest.mark.usefixtures("patch_file")
def test_a_patch_that_cannot_be_had(name: str, words: str) -> None:
    with pytest.raises(RefusedError, match=f"{name}: {words}"):
        planned_image("some-extension", options={"some-extension": PackageOptions(patch=name)})


@pytest.mark.parametrize("options", ["env: {A: b}", "no-deps: it brings another CUDA"])
def test_options_of_a_package_that_the_target_does_not_have(options: str) -> None:
    text = MATRIX_TEXT.format(options=f"    package-options:\n      numpy: {{{options}}}\n      numpi: {{{options}}}")
    with pytest.raises(RefusedError, match=r"own\.yaml:10: numpi is none of the target's packages\n.*python-packages"):
        planner.plan(yaml_file.loads(text, Matrix, "own.yaml"), FACTS)


def test_options_of_packages_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    (tmp_path / "requirements.txt").write_text("scipy\n")
    options = ", ".join(f"{name}: {{no-deps: why}}" for name in ("numpy", "scipy", "flash-attn", "nixl"))
    text = MATRIX_TEXT.format(options=f"    requirements: requirements.txt\n    package-options: {{{options}}}")
    (image,) = planner.plan(yaml_file.loads(text, Matrix, "own.yaml"), FACTS, ["own"], changes={"nixl": "1.5.0"}).images
    assert set(image.no_deps) == {"numpy", "scipy", "flash-attn", "nixl"}


def test_a_package_is_fetched_first_and_compiled_without_a_network() -> None:
    fetch, compile_step = stage(planned_image("some-extension"), "build-some-extension").split("\nRUN ")[1:]
    assert "pip-config" in fetch
    assert "export MAX_JOBS" in fetch  # a setup.py may read it when it is asked what it requires
    assert 'pip/pip" download' in fetch
    assert compile_step.startswith("--network=none ")
    assert 'pip/pip" wheel' in compile_step
    assert "secret" not in compile_step


def test_a_package_that_fetches_while_it_compiles_has_a_network() -> None:
    fetching = replace(planned_image("some-extension"), source_builds={"some-extension": SourceBuild(network=True)})
    assert "--network=none" not in stage(fetching, "build-some-extension")


def test_of_the_architectures_that_a_package_lists_itself_those_of_the_image_are_compiled(tmp_path: Path) -> None:
    builder = stage(planned_image("some-extension", gpu="sm_90"), "source-builder")
    assert "PYTORCH_NVCC=/opt/build-tools/nvcc-for-gpus " in builder
    (text,) = re.findall(r"<<'NVCC'\n(.*?)\nNVCC\n", builder, re.S)
    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\necho "$@"\n')
    nvcc.chmod(0o755)
    program = text.replace("/usr/local/cuda/bin/nvcc", str(nvcc))

    def compiled(words: str) -> str:
        completed = subprocess.run(
            [sys.executable, "-c", program, *words.split()], capture_output=True, text=True, check=True
        )
        return completed.stdout.strip()

    listed = "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90"
    assert compiled(f"-O3 {listed} -c k.cu") == "-O3 -gencode=arch=compute_90,code=sm_90 -c k.cu"
    assert compiled("-gencode=arch=compute_90a,code=sm_90a -c") == "-gencode=arch=compute_90a,code=sm_90a -c"
    assert compiled("-gencode arch=compute_80,code=sm_80 -c") == "-gencode=arch=compute_80,code=sm_80 -c"
    assert compiled("-O3 -c k.cu") == "-O3 -c k.cu"


@pytest.mark.parametrize("package", ["flash-attn", "causal-conv1d", "mamba-ssm", "transformer-engine-torch"])
def test_packages_that_look_for_a_wheel_elsewhere_are_told_to_compile(package: str) -> None:
    assert "_FORCE_BUILD='TRUE'\n" in stage(planned_image(package), f"build-{package}")


def test_each_package_is_compiled_by_itself_and_no_compiler_reaches_the_image() -> None:
    image = planned_image("flash-attn", "some-extension")
    assert "COPY --link --from=build-flash-attn /wheels/ /" in stage(image, "source-flash-attn")
    install = stage(image, "wheels-from-source")
    assert "RUN --network=none" in install
    for name in ("flash-attn", "some-extension"):
        assert f"--mount=type=bind,from=source-{name},target=/mnt/{name}" in install
    assert re.findall(r"--from=(\S+)", stage(image, "with-source-packages")) == ["wheels-from-source"]
    devel = stage(planned_image("flash-attn", variant="devel"), "with-source-packages")
    assert "COPY --link --from=wheels-from-source /devel/ /" in devel


@pytest.mark.parametrize("target", ["efa-pytorch", "erdma-pytorch"])
def test_an_image_without_such_packages_has_nothing_of_it(target: str) -> None:
    image = planned_image(target=target)
    assert (image.source_architectures, image.source_builds, image.toolkit) == ((), {}, ())


def test_of_a_cuda_without_a_compiler_in_wheels_packages_are_built_without_one() -> None:
    image = planned_image("some-extension", pytorch=TWELVE)
    assert (image.source_architectures, image.source_builds, image.toolkit) == ((), {}, ())
    assert "CUDA_HOME" not in stage(image, "source-builder")
    assert "cuda-toolkit" not in stage(image, "build-some-extension")


def test_what_cannot_be_built_without_a_compiler_of_cuda_12_is_refused_with_a_torch_that_has_one() -> None:
    ours = matrix.load().target("efa-pytorch").model_copy(update={"source_packages": ("flash-attn", "deepspeed")})
    (refusal,) = planner.plan(Matrix(targets={"own": ours}), FACTS, changes={"pytorch": TWELVE}).refusals
    (broken,) = refusal.broken
    assert broken.rule == "compiler-of-cuda"
    assert broken.reason.startswith("flash-attn compiles CUDA code, and no wheel has a compiler of CUDA 12.")
    assert re.search(r"--set pytorch=2\.\d+\.\d+, or leave", broken.reason)
    only = matrix.load().target("efa-pytorch").model_copy(update={"source_packages": ("deepspeed",)})
    assert planner.plan(Matrix(targets={"own": only}), FACTS, changes={"pytorch": TWELVE}).images
