"""Which GPUs an image's own CUDA code is compiled for."""

import pytest

from rdma_images import facts
from rdma_images.components import gpus
from rdma_images.components.nccl_tests import NcclTestsDetails
from rdma_images.core.errors import RefusedError
from rdma_images.plan import matrix, planner
from rdma_images.plan.refusals import Plan
from rdma_images.render import labels

FACTS, MATRIX = facts.load(), matrix.load()


def make_plan(target: str, **changes: str) -> Plan:
    return planner.plan(MATRIX, FACTS, [target], changes=changes)


def compiled(target: str, **changes: str) -> NcclTestsDetails:
    (image,) = make_plan(target, **changes).images
    details = image.details(NcclTestsDetails)
    assert details
    return details


def test_every_gpu_of_an_instance_type_has_a_capability() -> None:
    named = {row.gpu for row in (FACTS.instances.types | FACTS.instances.unsettled).values() if row.gpu}
    assert named == set(FACTS.gpus.gpus)


@pytest.mark.parametrize("target", ["efa-nccl-tests", "erdma-nccl-tests"])
def test_every_gpu_of_the_fabric_that_cuda_compiles_for_finds_real_code(target: str) -> None:
    fabric = target.partition("-")[0]
    real = [gpus.compute_capability(arch) for arch in compiled(target).architectures]
    able = set(gpus.compiler_capabilities("13.0", FACTS))
    types = [row for row in FACTS.instances.types.values() if row.fabric == fabric and row.gpu]
    capabilities_of_fabric = {FACTS.gpus.gpus[row.gpu].capability for row in types if row.gpu} & able
    assert capabilities_of_fabric
    for capability in capabilities_of_fabric:
        major, minor = map(int, capability.split("."))
        runs = [code for code in real if int(code.split(".")[0]) == major and int(code.split(".")[1]) <= minor]
        assert runs, f"nothing for {capability} among {real}"


def test_a_generation_is_compiled_once_for_its_oldest_gpu() -> None:
    assert compiled("efa-nccl-tests").architectures == ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")


def test_where_a_gpu_is_not_named_every_later_generation_is_compiled() -> None:
    assert None in {row.gpu for row in FACTS.instances.types.values() if row.fabric == "erdma"}
    assert compiled("erdma-nccl-tests").architectures == ("sm_80", "sm_90", "sm_100", "sm_120")


def test_the_newest_has_ptx_too_and_no_other() -> None:
    flags = compiled("efa-nccl-tests").gencode.split()
    assert flags[-2:] == ["-gencode=arch=compute_120,code=sm_120", "-gencode=arch=compute_120,code=compute_120"]
    assert sum("code=compute" in flag for flag in flags) == 1


def test_one_gpu_is_compiled_for_alone_and_named_in_the_tag_and_the_label() -> None:
    (image,) = make_plan("efa-nccl-tests", gpu="sm_89").images
    assert image.tag.endswith("-debian13-sm_89")
    details = image.details(NcclTestsDetails)
    assert details
    assert details.architectures == ("sm_89",)
    assert "gpu" not in image.components
    label_values = labels.image_labels(image, "", labels.Revision("x", 0, None), [])
    assert label_values["io.rdma-images.nccl-tests.architectures"] == "sm_89"


@pytest.mark.parametrize(
    ("target", "gpu", "rule", "words", "nearest"),
    [
        ("efa-nccl-tests", "sm_70", "gpu-compiler", "CUDA 13 compiles for sm_75, sm_80", "sm_75"),
        ("efa-nccl-tests", "sm_110", "gpu-of-fabric", "no instance type with efa has such a GPU", "sm_120"),
        ("erdma-nccl-tests", "sm_75", "gpu-of-fabric", "no instance type with erdma has such a GPU", "sm_80"),
    ],
)
def test_a_gpu_that_helps_nobody_is_refused(target: str, gpu: str, rule: str, words: str, nearest: str) -> None:
    (refusal,) = make_plan(target, gpu=gpu).refusals
    (broken,) = refusal.broken
    assert broken.rule == rule
    assert words in broken.reason
    assert refusal.nearest == {"gpu": nearest}


@pytest.mark.parametrize("value", ["sm_12345", "90", "sm_90a", "compute_90", "sm_"])
def test_a_gpu_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(RefusedError, match="no such value"):
        make_plan("efa-nccl-tests", gpu=value)


def test_a_target_that_compiles_nothing_for_gpus_has_no_such_axis() -> None:
    (refusal,) = make_plan("efa-pytorch", gpu="sm_90").refusals
    assert refusal.dropped_axes == {"gpu": "sm_90"}


def test_only_the_fabrics_own_networking_of_gpus_is_compiled() -> None:
    assert [
        omitted.backend for omitted in compiled("erdma-nccl-tests").omitted_backends if not omitted.except_architectures
    ] == ["GDAKI", "GPI", "EFA_GDA"]
    assert [
        omitted.backend for omitted in compiled("efa-nccl-tests").omitted_backends if not omitted.except_architectures
    ] == ["GDAKI", "GPI"]


@pytest.mark.parametrize(
    ("gpu", "capabilities"),
    [("fabric", (900, 1000)), ("sm_80", ()), ("sm_90", (900,)), ("sm_103", (1030,)), ("sm_120", ())],
)
def test_networking_that_few_instance_types_have_is_compiled_for_their_gpus(
    gpu: str, capabilities: tuple[int, ...]
) -> None:
    assert {
        omitted.backend: omitted.except_architectures
        for omitted in compiled("efa-nccl-tests", gpu=gpu).omitted_backends
    }["EFA_GDA"] == capabilities


def test_an_image_that_falls_back_has_all_of_it() -> None:
    assert compiled("efa-nccl-tests", fallback="allow").omitted_backends == ()
