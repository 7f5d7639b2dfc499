"""A fabric added to an existing image: its plan by measured versions, and refusals."""

from pathlib import Path
from typing import Any

import pytest

from rdma_images import facts
from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import ExistingImage, Image, Onto
from rdma_images.plan import matrix, onto, onto_changes, planner
from tests.support.existing_images import CONDA, DIGEST, REF, existing, ngc, plan_onto, planned_onto, read_matrix

FACTS = facts.load()


def added(base: ExistingImage, **changes: str) -> tuple[Image, Onto]:
    image = planned_onto(base, **changes)
    assert image.onto
    return image, image.onto


def test_versions_are_the_images_own() -> None:
    image, _ = added(existing())
    versions = {name: component.version for name, component in image.components.items()}
    assert versions["pytorch"] == "2.15.0"
    assert versions["python"] == "3.12.11"
    assert versions["nccl"] == "2.30.7"
    assert versions["efa-installer"] == "1.50.0"
    assert versions["aws-ofi-nccl"] == "1.21.1"
    assert {image.components[name].decided_by for name in ("base", "python", "pytorch", "cuda", "nccl")} == {"--onto"}
    assert image.tag == "2.15.0-cu13.2-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.12-debian13-onto-1f1f1f1f1f1f"


def test_the_environment_fails_closed_and_has_the_fabrics_programs_last() -> None:
    image, image_plan = added(existing())
    assert (image.python_packages, image.source_packages, image.constraints) == ((), (), ())
    assert image_plan.environment["NCCL_NET"] == "Libfabric"
    assert image_plan.environment["FI_PROVIDER"] == "efa"
    assert image_plan.environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert "NVIDIA_VISIBLE_DEVICES" not in image_plan.environment
    folders = image_plan.environment["PATH"].split(":")
    assert (folders[0], folders[-2:]) == ("/opt/conda/bin", ["/opt/amazon/efa/bin", "/opt/amazon/openmpi/bin"])


def test_a_plugin_that_comes_first_is_replaced_and_named() -> None:
    _, image_plan = added(ngc())
    assert image_plan.hidden_folders == ("/opt/hpcx/nccl_rdma_sharp_plugin/lib",)
    assert image_plan.removed_files == ("/usr/lib/x86_64-linux-gnu/libnccl-net.so",)
    assert image_plan.environment["LD_LIBRARY_PATH"] == "/usr/local/cuda/lib64"
    replaced = [change.part for change in image_plan.changes if change.kind == "replaced"]
    assert "/opt/hpcx/nccl_rdma_sharp_plugin/lib on the loader's path" in replaced
    assert "rdma-core 50.0-2build2" in replaced


def test_a_named_plugin_is_never_replaced_by_an_empty_value() -> None:
    _, image_plan = added(existing(environment={"NCCL_NET_PLUGIN": "/opt/hpcx/libnccl-net.so"}))
    assert image_plan.environment["NCCL_NET_PLUGIN"] == "libnccl-net.so"


def test_an_older_efa_is_replaced() -> None:
    base = existing(
        fabric="efa",
        installer="1.42.0",
        environment={"LD_LIBRARY_PATH": "/opt/amazon/efa/lib:/opt/aws-ofi-nccl/lib:/opt/lib", "FI_PROVIDER": "efa"},
        loader_folders=("/opt/amazon/efa/lib", "/opt/aws-ofi-nccl/lib"),
        plugins=("/opt/aws-ofi-nccl/lib/libnccl-net.so",),
    )
    _, image_plan = added(base)
    replaced = [change.part for change in image_plan.changes if change.kind == "replaced"]
    assert replaced[:2] == ["EFA installer 1.42.0", "/opt/aws-ofi-nccl/lib/libnccl-net.so"]
    assert not any(change.part.startswith("aws-ofi-nccl") for change in image_plan.changes)
    assert image_plan.environment["LD_LIBRARY_PATH"] == "/opt/lib"
    assert not any(change.part == "FI_PROVIDER=efa" for change in image_plan.changes)
    assert image_plan.hidden_folders == ("/opt/aws-ofi-nccl/lib",)


def test_what_stays_is_named() -> None:
    _, image_plan = added(ngc())
    words = " ".join(change.part for change in image_plan.changes if change.kind == "kept")
    assert "2 layers" in words
    assert "/opt/nvidia/nvidia_entrypoint.sh" in words


def test_what_the_target_adds_and_with_what_containers_start() -> None:
    image = planned_onto(
        more="    debian-packages: [tmux]\n    user: {name: user, uid: 1000}\n    entrypoint: [tini, --]\n"
        "    with: [gdrcopy, ssh]\n"
    )
    assert image.onto
    assert image.additions
    assert (image.debian_packages, image.additions.workdir, image.stages) == (("tmux",), "/workspace", ("ssh",))
    assert "gdrcopy" in image.components
    changes = [(change.kind, change.part, change.why) for change in image.onto.changes]
    assert ("replaced", "user root", "by user (1000), the target's") in changes
    assert ("replaced", "no entry point", "by tini --, the target's") in changes
    parts = [part for kind, part, why in changes if why == "a part that the target names"]
    assert parts == [f"gdrcopy {image.version('gdrcopy')}", "ssh"]


def test_a_target_brings_its_packages_and_not_what_the_fabric_needs() -> None:
    onto_ours = onto.matrix_onto(matrix.load(), ["efa-pytorch"], REF)
    (image,) = planner.plan(onto_ours, FACTS, ["efa-pytorch"], measure_base=lambda _: CONDA).images
    assert image.id.startswith("efa-pytorch-2.15.0-cu13.2")
    assert image.python_packages == ("numpy",)


def test_what_becomes_of_packages_is_said() -> None:
    image = planned_onto(more="    python-packages: [einops, 'numpy>=2.4']\n")
    image = onto_changes.with_package_changes(image, {"einops": "0.8.2", "numpy": "2.4.1", "mpmath": "1.3.0"})
    assert image.onto
    changes = [(change.kind, change.part, change.why) for change in image.onto.changes]
    assert changes[-4:] == [
        ("added", "einops 0.8.2", "python-packages of the target, for /opt/conda/bin/python3"),
        ("added", "mpmath 1.3.0", "required by these packages"),
        ("replaced", "numpy 2.3.0", "by 2.4.1, in /opt/conda/bin/python3"),
        ("kept", "2 Python packages of the image", "they need not change for these"),
    ]


@pytest.mark.parametrize("package", ["'./project'", "'x @ git+https://example/x@" + "0" * 40 + "'"])
def test_projects_and_commits_are_not_built(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").write_text('[project]\nname = "x"\n')
    with pytest.raises(RefusedError, match=r"mine: x @ .*: nothing is built for the Python of an image of --onto\n"):
        planned_onto(more=f"    python-packages: [{package}]\n")


def test_a_wheel_of_ones_own_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    (tmp_path / "x-1.0-py3-none-any.whl").touch()
    (package,) = planned_onto(more="    python-packages: [./x-1.0-py3-none-any.whl]\n").python_packages
    assert package.startswith("x @ ./x-1.0-py3-none-any.whl#sha256=")


def test_packages_need_a_python() -> None:
    with pytest.raises(RefusedError, match="mine: no Python is in the image for numpy\n"):
        planned_onto(existing(python=""), more="    python-packages: [numpy]\n")


def test_the_wheel_of_nccl_is_replaced_by_a_newer_one() -> None:
    image, image_plan = added(existing(), nccl="2.31.2")
    assert (image.version("nccl"), image.components["nccl"].decided_by) == ("2.31.2", "--set")
    assert any(change.why == "for its NCCL 2.31.2" for change in image_plan.changes)
    assert "nccl2.31.2" in image.tag


@pytest.mark.parametrize(
    ("base", "nccl", "words"),
    [
        (existing(), "2.29.7", "nccl 2.29.7: the image has 2.30.7, and its programs may call"),
        (existing(nccl_path="/usr/lib/x86_64-linux-gnu/libnccl.so.2.30.7"), "2.31.2", "no wheel would replace"),
        (existing(python_packages={}), "2.31.2", "no wheel would replace"),
        (existing(), "pytorch", "nccl pytorch: the torch of the image stays"),
    ],
)
def test_an_nccl_that_cannot_take_the_place_of_the_images(base: ExistingImage, nccl: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        plan_onto(base, nccl=nccl)


def test_nccl_tests_need_a_library_of_nccl() -> None:
    base = existing(nccl_path="/opt/conda/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so")
    (refusal,) = plan_onto(base, more="    with: [nccl-tests]\n").refusals
    assert [broken.rule for broken in refusal.broken] == ["onto-nccl-tests"]


def test_parts_that_are_packages_are_installed_too() -> None:
    image, _ = added(existing(), nixl="1.5.0")
    assert "nixl==1.5.0" in image.python_packages


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"system": "alpine3.22"}, "onto-libc", "musl"),
    ({"system": "rocky9.6"}, "onto-system", "debian12 (glibc 2.36)"),
    ({"system": "amzn2023"}, "onto-system", "never tried"),
    ({"system": "debian11"}, "onto-system", "debian11"),
    ({"nccl": ""}, "onto-nccl", "no NCCL"),
    ({"nccl": "2.28.4"}, "onto-nccl", "nearest that is known: NCCL 2.28.7"),
    ({"cuda": ""}, "onto-cuda", "does not say its CUDA"),
    ({"cuda": "11.8"}, "cuda-driver", "CUDA 11"),
    ({"fabric": "erdma"}, "onto-fabric", "the rdma-core of one fabric"),
    ({"verbs_package": "2410mlnx54-1.2410068"}, "onto-rdma-core", "OFED"),
    ({"verbs": "/usr/local/lib/libibverbs.so.1.14"}, "onto-rdma-core", "belongs to no package"),
]


@pytest.mark.parametrize(("changes", "rule", "words"), REFUSED)
def test_refused(changes: dict[str, Any], rule: str, words: str) -> None:
    answer = plan_onto(existing(**changes))
    (refusal,) = answer.refusals
    assert not answer.images
    (broken,) = [broken for broken in refusal.broken if broken.rule == rule]
    assert words in broken.reason


def test_the_nearest_plugin_is_compiled_where_the_installer_brings_none() -> None:
    (refusal,) = plan_onto(existing(system="debian12")).refusals
    assert [broken.rule for broken in refusal.broken] == ["installer-plugin"]
    assert refusal.nearest
    assert set(refusal.nearest) == {"aws-ofi-nccl"}
    image, image_plan = added(existing(system="debian12"), **{"aws-ofi-nccl": refusal.nearest["aws-ofi-nccl"]})
    assert image.toolkit
    assert any("compiled on it" in change.part for change in image_plan.changes)


def test_a_nearest_combination_never_changes_the_image() -> None:
    (refusal,) = plan_onto(existing(nccl="2.28.9"), fabric="erdma").refusals
    assert {broken.rule for broken in refusal.broken} >= {"nccl-on-erdma", "erdma-codename"}
    assert refusal.nearest is None


def test_erdma_is_added_where_alibaba_has_the_suite() -> None:
    (image,) = plan_onto(existing(system="ubuntu22.04"), fabric="erdma").images
    assert image.template == "onto-erdma"
    assert image.version("erdma-apt") == "jammy"


def test_the_image_decides_its_own_versions() -> None:
    with pytest.raises(RefusedError, match=r"--set cuda=13\.0: the image decides it, and has 13\.2"):
        plan_onto(cuda="13.0")


@pytest.mark.parametrize(
    ("targets", "ref", "words"),
    [
        ([], REF, "name it with --target"),
        (["efa-pytorch", "erdma-pytorch"], REF, "name it with --target"),
        (["efa-pytorch"], "team/training:1", "names no digest"),
    ],
)
def test_what_cannot_be_meant(targets: list[str], ref: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        onto.matrix_onto(matrix.load(), targets, ref)


def test_a_target_keeps_its_fabric_and_its_installer() -> None:
    target = onto.target_onto(matrix.load().target("efa-nccl-tests"), REF)
    assert (target.fabric, sorted(target.default)) == ("efa", ["efa-installer", "gdrcopy", "nccl-tests"])


@pytest.mark.usefixtures("state")
def test_measurements_of_another_form_are_none() -> None:
    onto.write_record(existing())
    assert onto.find_record(REF) == CONDA
    for changes in ({"suite": None}, {"ref": f"team/other:1@{DIGEST}"}):
        onto.write_record(existing(**changes))
        assert onto.find_record(REF) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ref": "pytorch/pytorch:2.9.1"}, r"matrix\.yaml:6: .*names no digest"),
        ({"default": "{efa-installer: 1.50.0, base: debian13}"}, "decides its base"),
        ({"more": "    source-packages: [flash-attn]\n"}, "nothing is compiled for the Python of the image"),
        ({"more": "    template: efa-pytorch\n"}, "takes its place"),
        ({"more": "    python-packages: [torch==2.14.0]\n"}, "the axis pytorch decides the version of torch"),
        (
            {"more": "    python-packages: [nvidia-nccl-cu13]\n"},
            "the axis nccl decides the version of nvidia-nccl-cu13",
        ),
    ],
)
def test_what_a_target_onto_an_image_cannot_say(fields: dict[str, str], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        read_matrix(**fields)


def test_a_target_that_compiles_packages_is_not_added() -> None:
    ours = matrix.load().target("efa-pytorch").model_copy(update={"source_packages": ("flash-attn",)})
    with pytest.raises(RefusedError, match="the target has source-packages, and nothing is compiled for the Python"):
        onto.target_onto(ours, REF)


def test_an_image_without_torch_has_no_torch_in_its_tag() -> None:
    image, _ = added(existing(pytorch="", python=""))
    assert image.tag.startswith("cu13.2-nccl2.30.7")
    assert "-py" not in image.tag
    assert "python" not in image.components
