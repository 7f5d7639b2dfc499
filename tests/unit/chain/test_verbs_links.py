"""Which network NCCL takes to eRDMA and InfiniBand: its own, or HPC-X's, which reads other variables."""

from collections.abc import Mapping

import pytest

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import LibraryFile, PluginFile, StartedLibrary
from rdma_images.validate import suite
from tests.support.chain_parts import NONE, answer, image, plugin

HPCX = "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"
MLX5 = "/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so"
# As nccl-rdma-sharp-plugins names itself once it has started; without a device `init` returns ncclInternalError.
STARTED = plugin(
    "3 Plugin Path : /opt/hpcx", path=HPCX, interfaces={"ncclNetPlugin_v": 9}, network="IBext_v9", result=3, mapped=[]
)
OFF = {"NCCL_IB_DISABLE": "1"}


def with_hpcx(environment: Mapping[str, str], run: StartedLibrary | None, project: str) -> Inspection:
    """Return an image for InfiniBand whose libnccl-net.so is `project`'s; `run` is None where nothing was run."""
    case = image(STARTED, {"NCCL_NET": "", **environment})
    tree, network = case.measured.tree, case.measured.network
    assert tree
    assert network
    about = PluginFile(project=project, exports={"ncclNetPlugin_v": [8, 9]}, needed=["libibverbs.so.1"])
    default = tree.libraries.resolved["libnccl-net.so"].model_copy(update={"path": HPCX, "file": HPCX, "error": ""})
    resolved = {**tree.libraries.resolved, "libnccl-net.so": default}
    libraries = tree.libraries.model_copy(update={"plugins": {HPCX: about}, "resolved": resolved})
    files = tree.files.model_copy(update={"library_files": {**tree.files.library_files, MLX5: LibraryFile(size=90000)}})
    verbs = network.verbs.model_copy(update={"opened": {MLX5: ""}})
    started_network = network.model_copy(update={"plugins": [run], "verbs": verbs}) if run else None
    update = {"network": started_network, "tree": tree.model_copy(update={"libraries": libraries, "files": files})}
    expected = case.expected.model_copy(update={"fabric": None})
    return case.model_copy(update={"measured": case.measured.model_copy(update=update), "expected": expected})


def hpcx(environment: Mapping[str, str], run: StartedLibrary | None = STARTED) -> Inspection:
    return with_hpcx(environment, run, "nccl-rdma-sharp-plugins")


@pytest.mark.parametrize("run", [STARTED, None])
@pytest.mark.parametrize(
    "environment",
    [NONE, OFF, {**OFF, "NCCL_NET": "IBext_v9"}, {**OFF, "NCCL_IBEXT_DISABLE": "1", "NCCL_PLUGIN_P2P": "ucx"}],
)
def test_hpcx_plugin_does_not_read_nccl_ib_disable(environment: Mapping[str, str], run: StartedLibrary | None) -> None:
    chain = answer(hpcx(environment, run), "ib", "")
    assert chain.outcome == "fabric"
    assert f"of {HPCX.rpartition('/')[2]}" in chain.answer or run is None
    assert ("ignores NCCL_IB_DISABLE" in chain.answer) is bool(environment)


@pytest.mark.parametrize(
    ("environment", "outcome", "words"),
    [
        ({"NCCL_IBEXT_DISABLE": "1"}, "fabric", "would use InfiniBand: libibverbs"),
        ({**OFF, "NCCL_NET": "IB"}, "end", "NCCL_IB_DISABLE=1 switches NCCL's own InfiniBand and RoCE transport off"),
        ({**OFF, "NCCL_IBEXT_DISABLE": "1"}, "tcp", f"and NCCL_IBEXT_DISABLE=1 that of {HPCX}"),
        ({**OFF, "NCCL_PLUGIN_P2P": "UCX", "NCCL_UCX_DISABLE": "1"}, "tcp", f"and NCCL_UCX_DISABLE=1 that of {HPCX}"),
        ({"NCCL_NET": "IBext_v9", "NCCL_IBEXT_DISABLE": "1"}, "end", "that NCCL_IBEXT_DISABLE=1 switches off"),
        ({"NCCL_IB_DISABLE": "false", "NCCL_IBEXT_DISABLE": "0x1"}, "fabric", "would use InfiniBand: libibverbs"),
        ({"NCCL_NET": "AWS Libfabric"}, "end", "NCCL_NET=AWS Libfabric names a network that the image does not have"),
    ],
)
def test_hpcx_plugin_has_a_switch_of_its_own(environment: Mapping[str, str], outcome: str, words: str) -> None:
    chain = answer(hpcx(environment), "ib", "")
    assert (chain.outcome, words in chain.answer) == (outcome, True)


@pytest.mark.parametrize(
    ("project", "outcome", "words"),
    [
        ("aws-ofi-nccl", "tcp", "NCCL_IB_DISABLE=1 switches NCCL's own"),
        ("uccl-rdma", "unknown", f"it is not known whether {HPCX} reads it"),
    ],
)
def test_what_another_plugin_makes_of_nccl_ib_disable(project: str, outcome: str, words: str) -> None:
    chain = answer(with_hpcx(OFF, STARTED, project), "ib", "")
    assert (chain.outcome, words in chain.answer) == (outcome, True)


def test_a_plugin_that_nccl_does_not_take_leaves_its_own_network() -> None:
    """Of other interfaces, and one that lacks a library."""
    other = STARTED.model_copy(update={"interfaces": {"ncclNetPlugin_v": 0}})
    assert answer(hpcx(OFF, other), "ib", "").outcome == "tcp"


def test_a_plugin_that_was_not_run_may_be_the_network_that_is_named() -> None:
    chain = answer(with_hpcx({"NCCL_NET": "gIB"}, None, ""), "ib", "")
    assert (chain.outcome, "may be the network of NCCL_NET=gIB" in chain.answer) == ("unknown", True)


def test_a_variable_that_the_plugin_does_not_read_is_said() -> None:
    (check,) = suite.run(hpcx(OFF), only={"environment.misspelt"})
    assert check.outcome == "failed"
    assert check.actual == (f"NCCL_IB_DISABLE does nothing: NCCL takes {HPCX}, which reads NCCL_IBEXT_DISABLE")
    assert check.fix == "set NCCL_IBEXT_DISABLE=1, too, or leave NCCL_IB_DISABLE out"


def test_a_libibverbs_that_opens_other_names_is_named() -> None:
    case = hpcx({"NCCL_NET": "IB"}, None)
    tree = case.measured.tree
    assert tree
    verbs = tree.libraries.resolved["libibverbs.so.1"].file
    libraries = tree.libraries.model_copy(update={"verbs_looks_for": {verbs: ["-rdmav2.so"]}})
    update = {"tree": tree.model_copy(update={"libraries": libraries})}
    chain = answer(case.model_copy(update={"measured": case.measured.model_copy(update=update)}), "ib", "")
    assert chain.answer.endswith(f"{verbs} opens libmlx5-rdmav2.so, and the image has {MLX5}")
