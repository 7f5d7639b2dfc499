"""Every target, built as a rehearsal: what it is for must work in it."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from rdma_images import engine as engines
from tests.support.built_targets import ref, run

pytestmark = [pytest.mark.e2e, pytest.mark.part("projects")]

CUDA_BASE = ("--set", "base=cuda13.2.1-devel-ubuntu24.04")


def label(image: str, name: str) -> str:
    environ = engines.ensure().environ()
    shape = f'{{{{index .Config.Labels "io.rdma-images.{name}"}}}}'
    command = ["docker", "image", "inspect", "--format", shape, image]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def for_nobody() -> Iterator[list[str]]:
    """Yield a list of images that are removed together at the end."""
    lines: list[str] = []
    yield lines
    environ = engines.ensure().environ()
    subprocess.run(["docker", "image", "rm", "--force", *set(lines)], env=environ, capture_output=True, check=True)


@pytest.mark.parametrize("target", ["erdma-nccl-tests", pytest.param("erdma-pytorch", marks=pytest.mark.exhaustive)])
def test_erdma_has_alibabas_packages_and_nothing_of_the_repository(target: str, for_nobody: list[str]) -> None:
    image = ref("--target", target)
    for_nobody.append(image)
    code, output = run(
        image,
        "dpkg-query -W libibverbs1 ibverbs-providers; cat /etc/libibverbs.d/erdma.driver; "
        "ls /etc/apt/keyrings /etc/apt/sources.list.d /mnt; printenv NCCL_NET",
    )
    assert code == 0, output
    assert len(re.findall(r"\+standin$", output, re.MULTILINE)) == 2
    assert "driver erdma" in output
    assert "erdma.asc" not in output
    assert "erdma-apt" not in output
    assert output.splitlines()[-1] == "IB"


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["efa-vllm", "erdma-vllm", "efa-sglang", "erdma-sglang"])
def test_a_server_is_built_whole_and_imported(target: str) -> None:
    """Each needs 20 GB of disk, and goes before the next."""
    image = ref("--target", target)
    try:
        code, output = run(image, f"python -c 'import {target.partition('-')[2]}'")
    finally:
        subprocess.run(["docker", "image", "rm", image], env=engines.ensure().environ(), check=True)
    assert code == 0, output


@pytest.mark.parametrize(
    ("target", "nccl"),
    [  # `devel_image` is of efa-nccl-tests, too, and both targets have their programs from one stage
        pytest.param("efa-nccl-tests", 23102, marks=pytest.mark.exhaustive),
        ("erdma-nccl-tests", 23007),
    ],
)
def test_the_programs_start_with_mpi_and_the_images_nccl(target: str, nccl: int, for_nobody: list[str]) -> None:
    """Root starts them, without an option for it."""
    image = ref("--target", target, "--set", "nccl=" + ".".join(map(str, numbers(nccl))))
    for_nobody.append(image)
    code, output = run(image, "mpirun --oversubscribe -np 2 all_reduce_perf -b 8 -e 16")
    assert code == 1  # a stand-in measures nothing, and says so
    for rank in (0, 1):
        assert f"rank {rank} of 2, NCCL {nccl}, 0 GPUs: this image is a rehearsal" in output
    code, output = run(image, "ldd /opt/nccl-tests/bin/all_reduce_perf")
    assert "libnccl.so.2 => /opt/venv/site-packages/nvidia/nccl/lib/libnccl.so.2" in output


def numbers(number: int) -> tuple[int, int, int]:
    """Return NCCL's number of a version, 23102, as the version: 2, 31, 2."""
    return number // 10000, number // 100 % 100, number % 100


@pytest.fixture(scope="module", params=[(), pytest.param(CUDA_BASE, marks=pytest.mark.exhaustive)], ids=["own", "cuda"])
def devel_image(request: pytest.FixtureRequest, for_nobody: list[str]) -> str:
    """Return the name of a devel image with a compiled plugin, on the target's own base and on a CUDA base."""
    chosen = ("--set", "variant=devel", "--set", "aws-ofi-nccl=1.20.0", *request.param)
    image = ref("--target", "efa-nccl-tests", *chosen)
    for_nobody.append(image)
    return image


def test_a_plugin_from_source_is_the_only_one(devel_image: str) -> None:
    code, output = run(
        devel_image, "ldconfig -p | grep libnccl-net; ls /opt/amazon /opt/aws-ofi-nccl/lib; ! dpkg -s libnccl-ofi"
    )
    assert code == 0, output
    assert set(re.findall(r"=> (\S+)/libnccl-net\S*", output)) == {"/opt/aws-ofi-nccl/lib"}
    assert "ofi-nccl\n" not in output.replace("aws-ofi-nccl\n", "")
    assert label(devel_image, "component.aws-ofi-nccl") == "1.20.0"


def test_a_devel_image_compiles_with_its_own_toolkit_also_on_a_cuda_base(devel_image: str) -> None:
    """The image's CUDA 13.0, not the base's 13.2, whose loader also finds a shared runtime."""
    program = "int main() { int version; return cudaRuntimeGetVersion(&version) || version / 10 != 1300; }"
    shared = "--cudart=shared" if "devel-ubuntu" in devel_image else ""
    code, output = run(
        devel_image,
        f"cd /tmp; echo '{program}' > a.cu; nvcc {shared} -o a a.cu; ./a; ldd a; nvcc --version; "
        'readlink -f /usr/local/cuda; printf "<%s>" "${LD_LIBRARY_PATH-}" "${NCCL_VERSION-}"',
    )
    assert code == 0, output
    assert "release 13.0" in output
    assert ("libcudart.so.13 => /" in output) == bool(shared)
    assert "/opt/venv/site-packages/nvidia/cu13\n" in output
    assert "<><>" in output


@pytest.mark.exhaustive
def test_a_cuda_base_keeps_its_toolkit_and_nothing_that_leads_the_loader(for_nobody: list[str]) -> None:
    image = ref("--target", "efa-nccl-tests", *CUDA_BASE, "--set", "variant=runtime")
    for_nobody.append(image)
    script = 'readlink -f /usr/local/cuda; nvcc --version; printf "<%s>" "$LD_LIBRARY_PATH" "$NCCL_VERSION"'
    code, output = run(image, script)
    assert code == 0, output
    assert "/usr/local/cuda-13.2\n" in output
    assert "release 13.2" in output
    assert "<><>" in output
