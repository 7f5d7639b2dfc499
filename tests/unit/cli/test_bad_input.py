"""Generated bad input: every case is read or refused with a sentence, in bounded time and memory."""

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from rdma_images import facts
from rdma_images.ci import ci_jobs, select
from rdma_images.core import paths, yaml_file
from rdma_images.facts.gpu_software import Torch
from rdma_images.facts.nccl_logs import NcclLogFacts
from rdma_images.inputs import target_options
from rdma_images.inputs.project import Project
from rdma_images.plan import axes, matrix, planner
from tests.support.odd_input import edited, generated, values, words

FACTS = facts.load()
OURS = paths.MATRIX.read_text(encoding="utf-8")


@st.composite
def targets(draw: st.DrawFn) -> dict[str, object]:
    """Return a target whose lists are of the right shape, and of any content."""
    axis = st.sampled_from(sorted(axes.BY_NAME))
    value = axis.flatmap(lambda name: st.sampled_from([*axes.known_values(axes.BY_NAME[name], FACTS)])) | words
    row = st.dictionaries(axis, value, max_size=5)
    many = st.dictionaries(axis, st.lists(value, max_size=40), max_size=5)
    return {
        "summary": "x",
        "fabric": draw(st.sampled_from(["efa", "erdma"]) | words),
        "python-packages": draw(st.lists(st.sampled_from(["numpy", "NumPy", "torch==2.0.0"]) | words, max_size=3)),
        "default": {"base": "debian13", "efa-installer": "1.50.0"} | draw(row),
        "values": draw(many),
        "exclude": [{"when": condition, "reason": "x"} for condition in draw(st.lists(many, max_size=3))],
    }


def read_matrix(text: str) -> None:
    """Run `invoke plan` with a matrix.yaml."""
    read = yaml_file.loads(text, matrix.Matrix, "matrix.yaml")
    planner.plan(read, FACTS)


def select_images(case: tuple[str, str]) -> None:
    """Run `invoke ci.matrix` with its options."""
    commit, runner = case
    images = planner.plan(matrix.load(), FACTS).images
    ci_jobs.jobs(images, images, target_options.parse_pairs([runner], "--runner", "platform=label"))
    if commit.startswith("-") or "\0" in commit:
        select.images_changed_since(commit, images)


KINDS: dict[str, tuple[st.SearchStrategy[object], Callable[..., object]]] = {
    "a matrix edited": (edited(OURS), read_matrix),
    "a matrix of any values": (
        st.dictionaries(words, values, max_size=3).map(lambda targets: str({"targets": targets})),
        read_matrix,
    ),
    "a target of any content": (
        st.dictionaries(st.just("mine") | words, targets(), max_size=2).map(lambda targets: str({"targets": targets})),
        read_matrix,
    ),
    "facts of torch edited": (
        edited((paths.FACTS / "torch.yaml").read_text()),
        lambda text: yaml_file.loads(text, Torch, "torch.yaml"),
    ),
    "facts of logs edited": (
        edited((paths.FACTS / "nccl-logs.yaml").read_text()),
        lambda text: yaml_file.loads(text, NcclLogFacts, "nccl-logs.yaml"),
    ),
    "options of --set": (
        st.lists(st.tuples(st.sampled_from(sorted(axes.BY_NAME)) | words, words).map("=".join) | words, max_size=3),
        lambda pairs: target_options.chosen_plan(Project(matrix.load(), FACTS), None, False, pairs),
    ),
    "options of ci.matrix": (st.tuples(words, st.tuples(words, words).map("=".join)), select_images),
}


@pytest.mark.parametrize("count", [60, pytest.param(1750, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", KINDS)
def test_bad_input_is_read_or_refused(kind: str, count: int) -> None:
    generated(*KINDS[kind], count)
