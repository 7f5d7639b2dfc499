"""Plan: what would be built, and the nearest that works for what would not."""

import io
import json
import re
from itertools import combinations
from pathlib import Path

import pytest
from rich.console import Console

from rdma_images import components, facts
from rdma_images.components.aws_ofi_nccl import PluginDetails
from rdma_images.components.efa_installer import InstallerDetails
from rdma_images.components.nccl import NcclDetails
from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Fabric
from rdma_images.plan import axes, matrix, plan_table, planner, rules
from rdma_images.plan.candidate import candidate
from rdma_images.plan.refusals import Plan

FACTS = facts.load()
OURS = matrix.load()


def make_plan(*targets: str, all_rows: bool = False, **changes: str) -> Plan:
    changes = {axis.replace("_", "-"): value for axis, value in changes.items()}
    return planner.plan(OURS, FACTS, targets, all_rows, changes)


@pytest.mark.parametrize(
    ("target", "change", "packages", "library"),
    [
        ("efa-nccl-tests", "cuda=13.0", ("nvidia-cuda-runtime==13.0.*",), "nvidia/cu13/lib/libcudart.so.13"),
        ("efa-pytorch", "pytorch=2.15.0", ("numpy",), "nvidia/cu13/lib/libcudart.so.13"),
        ("efa-pytorch", "pytorch=2.10.0", ("numpy",), "nvidia/cuda_runtime/lib/libcudart.so.12"),
    ],
)
def test_libfabric_finds_cudas_runtime(target: str, change: str, packages: tuple[str, ...], library: str) -> None:
    axis, _, value = change.partition("=")
    (image,) = planner.plan(OURS, FACTS, [target], changes={axis: value}).images
    installer = image.components["efa-installer"].details
    assert isinstance(installer, InstallerDetails)
    assert (image.python_packages, installer.cuda_runtime) == (packages, library)


def test_default_row() -> None:
    (image,) = make_plan("efa-pytorch").images
    assert image.id == "efa-pytorch-2.15.0-cu13.2-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.13-debian13"
    assert image.axes["nccl"] == "pytorch"
    assert image.components["nccl"].decided_by == "pytorch"
    assert image.components["pytorch"].decided_by == "matrix"
    assert image.version("libfabric") == "2.6.0amzn1.0"
    assert image.version("rdma-core") == "64.0"
    assert image.details(NcclDetails).package == "nvidia-nccl-cu13"
    assert image.details(PluginDetails).origin == "installer"
    assert image.python_packages == ("numpy",)
    assert image.template == "efa-pytorch"
    (need,) = image.requirements
    assert (need.name, need.at_least) == ("nvidia-driver", "580")


def test_whole_matrix_has_no_refusal_and_unique_tags() -> None:
    all_rows = make_plan(all_rows=True)
    assert all_rows.refusals == ()
    assert len({image.id for image in all_rows.images}) == len(all_rows.images)
    assert all(re.fullmatch(r"[\w][\w.-]{0,127}", image.tag) for image in all_rows.images)
    assert [image.target for image in make_plan().images] == list(OURS.targets)


def test_a_value_outside_the_matrix_is_in_the_tag() -> None:
    (image,) = make_plan("efa-pytorch", nccl="2.32.3", platform="linux/arm64", base="ubuntu24.04").images
    assert "-nccl2.32.3-" in image.tag
    assert image.tag.endswith("-ubuntu24.04-arm64")
    assert (image.platform, image.components["nccl"].decided_by) == ("linux/arm64", "--set")


def test_plugin_of_another_version_is_built_from_source() -> None:
    (image,) = make_plan("efa-pytorch", efa_installer="1.51.0", aws_ofi_nccl="1.21.1").images
    plugin = image.details(PluginDetails)
    assert plugin.origin == "source"
    assert plugin.text_fields()["configure"] == "--enable-platform-aws --disable-tests"


def test_a_change_reaches_the_targets_that_have_the_axis() -> None:
    with_installer = {name for name, target in OURS.targets.items() if target.fabric == "efa"}
    assert {image.target for image in make_plan(efa_installer="1.51.0").images} == with_installer


def test_rows_that_changes_make_equal_are_one() -> None:
    assert len(make_plan("efa-pytorch", all_rows=True, base="debian13", pytorch="2.15.0").images) == 1
    assert len(make_plan("efa-pytorch", all_rows=True, base="ubuntu22.04", pytorch="2.15.0").refusals) == 1


@pytest.mark.parametrize(
    ("target", "changes", "nearest"),
    [
        ("efa-pytorch", {"base": "ubuntu22.04"}, {"pytorch": "2.14.1"}),
        ("efa-pytorch", {"nccl": "2.29.7"}, {"pytorch": "2.13.0"}),
        ("efa-pytorch", {"efa_installer": "1.45.0"}, {"base": "ubuntu24.04"}),
        ("efa-pytorch", {"base": "debian12"}, {"aws-ofi-nccl": "1.21.1"}),
        ("erdma-pytorch", {"pytorch": "2.15.0"}, {"base": "ubuntu24.04"}),
        ("erdma-pytorch", {"pytorch": "2.11.0"}, {"nccl": "2.29.7"}),  # a nearer one was not seen to work
        ("efa-pytorch", {"platform": "linux/arm64"}, {"aws-ofi-nccl": "1.21.1"}),
        ("efa-pytorch", {"platform": "linux/arm64", "pytorch": "2.10.0"}, {"platform": "linux/amd64"}),
    ],
)
def test_nearest_that_works(target: str, changes: dict[str, str], nearest: dict[str, str]) -> None:
    answer = make_plan(target, all_rows=False, **changes)
    (refusal,) = answer.refusals
    assert answer.images == ()
    assert refusal.nearest == nearest
    suggested = refusal.axes | refusal.nearest
    assert rules.broken_rules(candidate(target, OURS.target(target), FACTS, suggested), FACTS) == ()


def test_what_is_not_known_is_shown_beside_what_is_planned() -> None:
    answer = make_plan("efa-pytorch", aws_ofi_nccl="1.7.4")
    assert "not known: which net ABI versions aws-ofi-nccl 1.7.4 exports" in plan_text(answer)


def test_what_the_target_does_not_have_is_to_be_left_out() -> None:
    answer = make_plan("erdma-pytorch", efa_installer="1.50.0")
    (refusal,) = answer.refusals
    assert (refusal.nearest, refusal.dropped_axes) == (None, {"efa-installer": "1.50.0"})
    assert {broken.rule for broken in refusal.broken} >= {"axis-of-target", "one-fabric"}
    assert "leave out: --set efa-installer=1.50.0" in plan_text(answer)


@pytest.mark.parametrize("target", ["efa-pytorch", "erdma-pytorch", "efa-vllm", "erdma-nccl-tests"])
def test_every_value_of_every_axis_is_planned_or_refused_with_a_reason(target: str) -> None:
    for axis in axes.AXES:
        for value in axes.known_values(axis, FACTS):
            answer = planner.plan(OURS, FACTS, [target], changes={axis.name: value})
            images, refusals = ([part.axes[axis.name] for part in parts] for parts in (answer.images, answer.refusals))
            assert images + refusals == [value]
            for refusal in answer.refusals:
                assert refusal.broken
                assert all(broken.reason and broken.source for broken in refusal.broken)


# A rule compares two components or three; all 32,768 sets of them take a minute of a processor.
@pytest.mark.parametrize("largest", [4, pytest.param(len(axes.AXES), marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("fabric", ["efa", "erdma"])
def test_every_target_that_can_be_written_is_described_or_refused_with_a_reason(fabric: Fabric, largest: int) -> None:
    newest = {axis.name: list(axis.values(FACTS))[-1] for axis in axes.AXES} | {"base": "debian13", "python": "3.13"}
    optional_axes = [axis for axis in newest if axis != "base" and axes.BY_NAME[axis].default is None]
    for count in range(min(largest, len(optional_axes)) + 1):
        for chosen in combinations(optional_axes, count):
            row = {"base": "debian13"} | {axis: newest[axis] for axis in chosen}
            for change in ({}, {"variant": "devel"}, {"aws-ofi-nccl": "1.20.0"}):
                mine = matrix.Target(summary="mine", fabric=fabric, default=row | change)
                answer = candidate("mine", mine, FACTS)
                if broken_rules := rules.broken_rules(answer, FACTS):
                    assert all(broken.reason and broken.source for broken in broken_rules)
                else:
                    parts = [components.BY_NAME[name] for name in answer.components]
                    words = [part.details(answer, FACTS).text_fields() for part in parts]
                    assert all(isinstance(word, str) for part in words for word in part.values())


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"nccl": "2.30.7"}, "nccl needs cuda, which mine does not have: add it to its default row"),
        ({"nccl-tests": "2.20.0", "cuda": "13.0"}, "nccl-tests needs nccl"),
        ({"aws-ofi-nccl": "1.21.1"}, "aws-ofi-nccl needs efa-installer"),
        ({"efa-installer": "1.50.0", "variant": "devel"}, "a devel image needs cuda"),
        ({"efa-installer": "1.50.0", "aws-ofi-nccl": "1.20.0"}, "aws-ofi-nccl from source needs cuda"),
    ],
)
def test_a_target_without_what_it_needs(row: dict[str, str], sentence: str) -> None:
    mine = matrix.Target(summary="mine", fabric="efa", default={"base": "debian13"} | row)
    (broken,) = (
        rule_broken
        for rule_broken in rules.broken_rules(candidate("mine", mine, FACTS), FACTS)
        if rule_broken.rule == "incomplete"
    )
    assert sentence in broken.reason


@pytest.mark.parametrize(
    ("arguments", "changes", "sentence"),
    [
        (("efa-pytroch",), {}, "efa-pytroch: no such target\ndid you mean efa-pytorch"),
        (("efa-pytorch",), {"pytorch": "2.15"}, "pytorch 2.15: no such value\ndid you mean 2.15.0"),
        (("efa-pytorch",), {"pytorch": "cu118"}, "pytorch cu118: it names an index of torch's wheels for one CUDA"),
        (("efa-nccl-tests",), {"gpu": "H100"}, "gpu H100: no such value\nwrite sm_90"),
        (("efa-pytorch",), {"torch": "2.15.0"}, "torch: no such axis\ndid you mean pytorch"),
    ],
)
def test_not_known(arguments: tuple[str, ...], changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(sentence)) as error:
        make_plan(*arguments, all_rows=False, **changes)
    assert error.value.exit_code == 2


def test_no_target_has_the_axes_together() -> None:
    text = "targets: {mine: {summary: x, fabric: erdma, default: {base: ubuntu22.04}}}"
    mine = yaml_file.loads(text, matrix.Matrix, "matrix.yaml")
    with pytest.raises(RefusedError, match="no target has every axis of --set: pytorch"):
        planner.plan(mine, FACTS, changes={"pytorch": "2.14.1"})


def test_written_and_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path)
    answer = make_plan("efa-pytorch")
    path = planner.write(answer.images[0])
    assert path == tmp_path / answer.images[0].id / "plan.json"
    assert json.loads(path.read_text()) == json.loads(plan_table.as_json(answer))["images"][0]
    assert [entry.name for entry in path.parent.iterdir()] == ["plan.json"]


def plan_text(*plans: Plan) -> str:
    """Return the plans' tables as they are seen."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(*map(plan_table.table, plans))
    return console.export_text()


def test_table_for_people() -> None:
    text = plan_text(make_plan("efa-train"), make_plan("erdma-pytorch", pytorch="2.11.0"))
    assert "compiles: flash-attn in some 25 hours of one core, once; --set gpu=sm_90 compiles for one GPU" in text
    for words in ("2.6.0amzn1.0", ">= 580", "nccl-on-erdma", "segmentation fault", "source: ", "--set nccl="):
        assert words in text
