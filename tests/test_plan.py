"""Plan: what would be built, and the nearest that works for what would not."""

import io
import json
import re

import pytest
from rich.console import Console

from rdma_images import facts, matrix, paths, plan, plan_view, rules, yamlfile
from rdma_images.candidate import candidate
from rdma_images.errors import RefusedError

KNOWN = facts.load()
OURS = matrix.load()


def planned(*targets, everything=False, **changes):
    changes = {axis.replace("_", "-"): value for axis, value in changes.items()}
    return plan.plan(OURS, KNOWN, targets, everything, changes)


def test_default_row():
    (image,) = planned("efa-pytorch").images
    assert image.id == "efa-pytorch-2.15.0-cu13.2-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.13-debian13"
    assert image.axes["nccl"] == "pytorch"
    assert image.components["nccl"].decided_by == "pytorch"
    assert image.components["pytorch"].decided_by == "matrix"
    assert image.version("libfabric") == "2.6.0amzn1.0"
    assert image.version("rdma-core") == "64.0"
    assert image.components["nccl"].details == {"package": "nvidia-nccl-cu13"}
    assert image.components["aws-ofi-nccl"].details["from"] == "installer"
    assert image.python_packages == ("numpy",)
    assert image.template == "efa-pytorch"
    (need,) = image.requirements
    assert (need.what, need.at_least) == ("nvidia-driver", "580")


def test_whole_matrix_has_no_refusal_and_unique_tags():
    everything = planned(everything=True)
    assert everything.refusals == ()
    assert len({image.id for image in everything.images}) == len(everything.images)
    assert all(re.fullmatch(r"[\w][\w.-]{0,127}", image.tag) for image in everything.images)
    assert [image.target for image in planned().images] == list(OURS.targets)


def test_value_outside_the_matrix():
    (image,) = planned("efa-pytorch", nccl="2.32.3").images
    assert "-nccl2.32.3-" in image.tag
    assert image.components["nccl"].decided_by == "--set"


def test_plugin_of_another_version_is_built_from_source():
    (image,) = planned("efa-pytorch", efa_installer="1.51.0", aws_ofi_nccl="1.21.1").images
    assert image.components["aws-ofi-nccl"].details["from"] == "source"
    assert image.components["aws-ofi-nccl"].details["configure"] == "--disable-tests"


def test_other_platform_is_in_the_tag():
    (image,) = planned("efa-pytorch", platform="linux/arm64", base="ubuntu24.04").images
    assert image.platform == "linux/arm64"
    assert image.tag.endswith("-ubuntu24.04-arm64")


def test_a_change_reaches_the_targets_that_have_the_axis():
    assert {image.target for image in planned(efa_installer="1.51.0").images} == {
        "efa-pytorch",
        "efa-nccl-tests",
        "sagemaker-efa-pytorch",
    }


def test_same_image_twice_is_one():
    assert len(planned("efa-pytorch", everything=True, base="debian13", pytorch="2.15.0").images) == 1


@pytest.mark.parametrize(
    ("target", "changes", "nearest"),
    [
        ("efa-pytorch", {"base": "ubuntu22.04"}, {"pytorch": "2.14.1"}),
        ("efa-pytorch", {"nccl": "2.29.7"}, {"pytorch": "2.13.0"}),
        ("efa-pytorch", {"efa_installer": "1.45.0"}, {"base": "ubuntu24.04"}),
        ("efa-pytorch", {"base": "debian12"}, {"aws-ofi-nccl": "1.21.1"}),
        ("erdma-pytorch", {"pytorch": "2.15.0"}, {"pytorch": "2.14.1"}),
        ("efa-pytorch", {"platform": "linux/arm64"}, {"aws-ofi-nccl": "1.21.1"}),
        ("efa-pytorch", {"platform": "linux/arm64", "pytorch": "2.10.0"}, {"platform": "linux/amd64"}),
    ],
)
def test_nearest_that_works(target, changes, nearest):
    answer = planned(target, **changes)
    (refusal,) = answer.refusals
    assert answer.images == ()
    assert refusal.nearest == nearest
    asked = refusal.axes | refusal.nearest
    assert rules.check(candidate(target, OURS.target(target), KNOWN, asked), KNOWN) == ()


def test_torch_that_crashes_on_erdma_goes_with_a_later_nccl():
    (refusal,) = planned("erdma-pytorch", pytorch="2.11.0").refusals
    assert refusal.nearest is not None
    assert list(refusal.nearest) == ["nccl"]
    assert planned("erdma-pytorch", pytorch="2.11.0", **refusal.nearest).refusals == ()


def test_nothing_near_where_the_target_is_the_wrong_one():
    (refusal,) = planned("erdma-pytorch", efa_installer="1.50.0").refusals
    assert refusal.nearest is None
    assert {broken.rule for broken in refusal.broken} >= {"axis-of-target", "one-fabric"}


@pytest.mark.parametrize(
    ("arguments", "changes", "sentence"),
    [
        (("efa-pytroch",), {}, "no target 'efa-pytroch': did you mean efa-pytorch"),
        (("efa-pytorch",), {"pytorch": "2.15"}, "pytorch '2.15' is not known: did you mean 2.15.0"),
        (("efa-pytorch",), {"torch": "2.15.0"}, "no axis 'torch': did you mean pytorch"),
    ],
)
def test_not_known(arguments, changes, sentence):
    with pytest.raises(RefusedError, match=re.escape(sentence)) as error:
        planned(*arguments, **changes)
    assert error.value.exit_code == 2


def test_no_target_has_the_axes_together():
    text = "targets: {mine: {summary: x, fabric: erdma, default: {base: ubuntu22.04}}}"
    mine = yamlfile.loads(text, matrix.Matrix, "matrix.yaml")
    with pytest.raises(RefusedError, match="no target has pytorch"):
        plan.plan(mine, KNOWN, changes={"pytorch": "2.14.1"})


def test_written_and_as_json(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "IMAGES", tmp_path)
    answer = planned("efa-pytorch")
    path = plan.write(answer.images[0])
    assert path == tmp_path / answer.images[0].id / "plan.json"
    assert json.loads(path.read_text()) == json.loads(plan_view.as_json(answer))["images"][0]
    assert [entry.name for entry in path.parent.iterdir()] == ["plan.json"]


def test_table_for_people():
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(plan_view.table(planned("efa-pytorch")), plan_view.table(planned("erdma-pytorch", pytorch="2.11.0")))
    text = console.export_text()
    for words in ("2.6.0amzn1.0", ">= 580", "nccl-on-erdma", "segmentation fault", "source: ", "--set nccl="):
        assert words in text
