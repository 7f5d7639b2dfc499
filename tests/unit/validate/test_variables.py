"""The variables that the image's own libraries read, by the names that are in them."""

from pathlib import Path

import pytest

from rdma_images.validate.probes import variables
from rdma_images.validate.probes.rootfs import Root
from tests.incidents import elf_files
from tests.support.changed_case import check_outcome

HOST, TORCH = "nvshmem/lib/libnvshmem_host.so.3", "torch/lib/libtorch_cuda.so"
ENGINE = "lib/python3.12/site-packages/mooncake/engine.so"


@pytest.mark.parametrize(
    ("file", "words", "variable", "names"),
    [
        (HOST, ["REMOTE_TRANSPORT", "no name"], "NVSHMEM_DEBUGS", {"NVSHMEM_": ["NVSHMEM_REMOTE_TRANSPORT"]}),
        (TORCH, ["TORCH_NCCL_NAN_CHECK", "NAN"], "TORCH_NCCL_A", {"TORCH_NCCL_": ["TORCH_NCCL_NAN_CHECK"]}),
        (ENGINE, ["MC_GID_INDEX"], "MC_GID", {"MC_": ["MC_GID_INDEX"]}),
        (TORCH, ["GLOO_SOCKET_IFNAME"], "GLOO_IFNAME", {"GLOO_": ["GLOO_SOCKET_IFNAME"]}),
        (HOST, ["REMOTE_TRANSPORT"], "NCCL_DEBUG", {}),
        ("other/libother.so", ["REMOTE_TRANSPORT"], "NVSHMEM_DEBUGS", {}),
        (HOST, [], "NVSHMEM_DEBUGS", {}),
    ],
)
def test_the_names_in_a_library(
    tmp_path: Path, file: str, words: list[str], variable: str, names: dict[str, list[str]]
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_bytes(elf_files.library(words=words))
    (tmp_path / "libtorch_cpu.so").write_text("no library")
    paths = [f"/{file}", "/libtorch_cpu.so"]
    assert variables.readable_names(Root(str(tmp_path)), paths, {variable: "1"}) == names


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        (
            "NVSHMEM_REMOTE_TRANSPORTS",
            "failed: NVSHMEM_REMOTE_TRANSPORTS is read by nothing: NVSHMEM_REMOTE_TRANSPORT is",
        ),
        ("NVSHMEM_REMOTE_TRANSPORT", "passed"),
        ("NVSHMEM_HOME", "passed"),
    ],
)
def test_a_name_that_the_library_does_not_have(name: str, outcome: str) -> None:
    readable = {"NVSHMEM_": ["NVSHMEM_DEBUG", "NVSHMEM_REMOTE_TRANSPORT"]}
    assert check_outcome("environment.misspelt", environment={name: "ibrc"}, variables=readable) == outcome
