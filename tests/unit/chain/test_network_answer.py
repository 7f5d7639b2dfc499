"""The answer, and the first link that breaks, from what plugins and libraries said when they were run."""

from collections.abc import Mapping

import pytest

from rdma_images.chain import compute_chain
from rdma_images.core.errors import RefusedError
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import AssignedVariable, LibraryFile, PluginFile, Settings, StartedLibrary
from tests.support.case_parts import recorded
from tests.support.chain_parts import LIBFABRIC, NONE, PLUGIN, answer, changed, image, plugin

# What aws-ofi-nccl 1.21.1 said in a sealed container: built with and without --enable-cudart-dynamic, and with a value
# that it refuses.
FIRST = ("3 NET/OFI Initializing aws-ofi-nccl 1.21.1", "3 NET/OFI Using Libfabric version 2.1")
LAST = ("2 NET/OFI aws-ofi-nccl initialization failed", "2 NET/OFI Initializing plugin failed")
NO_DEVICE = (
    *FIRST,
    "3 NET/OFI Using CUDA driver version 13020 with runtime 13020",
    "3 NET/OFI No eligible providers were found",
    "2 NET/OFI Unable to find a protocol that worked.  Failing initialization.",
    *LAST,
)
NO_DRIVER = (
    *FIRST,
    "2 NET/OFI Failed to resolve CUDA function cuDriverGetVersion (last error: 35, result: 1)",
    "2 NET/OFI CUDA initialization failed.",
    *LAST,
)
NO_RUNTIME = (
    *FIRST,
    "2 NET/OFI Failed to find CUDA Runtime library: libcudart.so: cannot open shared object file",
    "2 NET/OFI CUDA initialization failed.",
    *LAST,
)
REFUSED = (*FIRST, "2 NET/OFI WARNING: OFI_NCCL_PROTOCOL set to invalid value FOO", *LAST)
MLX5 = "/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so"
WOULD = "libnccl-net-ofi.so 1.21.1 (net v12, tuner v6) → libfabric 2.1.0 → efa → libefa 1.3.56.1"


def with_start_script(inspection: Inspection, value: str) -> Inspection:
    """Return the image with a script of NVIDIA's entry point that names a plugin on line 2."""
    file = "/opt/nvidia/entrypoint.d/60-network.sh"
    line = AssignedVariable(file=file, line=2, name="NCCL_NET_PLUGIN", value=value, reader="launcher")
    settings = Settings(assigned=[line], absent=[], without_path={})
    return changed(inspection, {"measured.settings": settings})


@pytest.mark.parametrize(
    ("lines", "note"), [(NO_DEVICE, "until it looked for EFA devices"), (NO_DRIVER, "until it called the GPU driver")]
)
def test_a_plugin_that_lacks_what_no_image_has_would_be_used(lines: tuple[str, ...], note: str) -> None:
    chain = answer(image(plugin(*lines)))
    assert chain.outcome == "fabric"
    assert chain.answer == f"On p5.48xlarge NCCL 2.30.7 would use EFA: {WOULD}"
    assert [note in link.note for link in chain.links if link.name == "plugin"] == [True]
    assert {link.name: link.how for link in chain.links}["provider"] == "executed"


def test_what_a_machine_lacks_is_not_said_of_images() -> None:
    case = image(plugin(*NO_DEVICE))
    machine = case.model_copy(update={"subject": case.subject.model_copy(update={"digest": ""})})
    notes = {link.name: link.note for link in answer(machine).links}
    assert notes["plugin"] == "started until it looked for EFA devices, and there is none"


@pytest.mark.parametrize(
    ("run", "environment", "words"),
    [
        (plugin(*REFUSED), NONE, "refuses to start: NET/OFI WARNING: OFI_NCCL_PROTOCOL set to invalid value FOO"),
        (plugin(*NO_RUNTIME), NONE, "Failed to find CUDA Runtime library: libcudart.so"),
        (
            plugin(*FIRST, result=None, end_reason="SIGSEGV"),
            NONE,
            "crashes as NCCL starts it (SIGSEGV), after: NET/OFI Using",
        ),
        (
            plugin(path="", error="libnccl-net.so: wrong ELF class"),
            NONE,
            "libnccl-net.so cannot be opened: wrong ELF class",
        ),
        (plugin(*NO_DEVICE, interfaces={}), NONE, "none of the network interfaces that NCCL looks for"),
        (plugin(*NO_DEVICE), {"NCCL_NET": "OFI"}, "NCCL_NET=OFI asks for a network of that name, and /opt/amazon"),
        (plugin(*NO_DEVICE), {"NCCL_NET": "IB"}, "NCCL_NET=IB asks for NCCL's own InfiniBand transport"),
        (plugin(*NO_DEVICE), {"FI_PROVIDER": ""}, "FI_PROVIDER= leaves out libfabric's provider efa"),
    ],
)
def test_a_plugin_that_nccl_does_not_take_ends_a_job_that_names_its_network(
    run: StartedLibrary, environment: Mapping[str, str], words: str
) -> None:
    chain = answer(image(run, {"NCCL_NET": "Libfabric", **environment}))
    assert chain.outcome == "end"
    assert words in chain.answer


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"NCCL_NET": "Socket"}, "NCCL_NET=Socket asks for TCP sockets"),
        ({"NCCL_NET": "", "NCCL_NET_PLUGIN": "none"}, "NCCL_NET_PLUGIN=none keeps NCCL from opening a plugin"),
        ({"FI_PROVIDER": "tcp"}, "FI_PROVIDER=tcp leaves out libfabric's provider efa"),
        ({"FI_PROVIDER": "^efa"}, "FI_PROVIDER=^efa leaves out"),
    ],
)
def test_a_variable_takes_nccl_to_sockets(environment: Mapping[str, str], words: str) -> None:
    chain = answer(image(plugin(*NO_DEVICE), environment))
    assert (chain.outcome, words in chain.answer) == ("tcp", True)


@pytest.mark.parametrize("value", ["efa", "efa,tcp", "^tcp", "^"])
def test_a_provider_filter_with_efa_keeps_it(value: str) -> None:
    assert answer(image(plugin(*NO_DEVICE), {"FI_PROVIDER": value})).outcome == "fabric"


def test_a_libfabric_without_the_provider_breaks_the_chain() -> None:
    libfabric = StartedLibrary(path=LIBFABRIC, providers=["tcp", "shm", "ofi_hook_perf"], mapped=[LIBFABRIC])
    case = image(plugin(*NO_DEVICE), {"NCCL_NET": ""}, libfabric=libfabric)
    chain = answer(case)
    assert chain.answer.endswith("would use TCP sockets: libfabric has no provider efa, only tcp, shm")
    assert chain.outcome == "tcp"


def test_a_verbs_provider_that_does_not_open_breaks_the_chain() -> None:
    case = image(plugin(*NO_DEVICE), {"NCCL_NET": ""})
    assert case.measured.network
    path = next(iter(case.measured.network.verbs.opened))
    case = changed(case, {"measured.network.verbs.opened": {path: "version `IBVERBS_PRIVATE_34' not found"}})
    assert "IBVERBS_PRIVATE_34' not found" in answer(case).answer


@pytest.mark.parametrize(("name", "outcome"), [("AWS Libfabric", "unknown"), ("ofi", "unknown"), ("GPUDirect", "end")])
def test_a_rehearsal_answers_to_the_names_of_the_plugin(name: str, outcome: str) -> None:
    """The plugin takes the name of NCCL_NET as it is loaded, where it is one of its names; a stand-in has one name."""
    rehearsed = image(plugin(*NO_DEVICE), {"NCCL_NET": name})
    rehearsed = changed(rehearsed, {"subject.labels": recorded().subject.labels})
    assert answer(rehearsed).outcome == outcome


def test_a_rehearsal_cannot_be_judged() -> None:
    rehearsed = image(plugin()).model_copy(update={"subject": recorded().subject})
    assert answer(rehearsed).outcome == "unknown"
    assert "a rehearsal without efa-installer" in answer(rehearsed).answer


def test_an_instance_of_another_fabric_is_refused_beside_the_fabric() -> None:
    with pytest.raises(RefusedError, match=r"p5\.48xlarge has EFA"):
        compute_chain(recorded(), "erdma", "p5.48xlarge")
    with pytest.raises(RefusedError, match="no such fabric"):
        compute_chain(recorded(), "roce")


def test_an_image_of_efa_has_no_way_to_erdma_or_infiniband() -> None:
    chain = answer(image(plugin(*NO_DEVICE), {"NCCL_NET": ""}), "erdma", "")
    assert chain.answer.startswith(
        "On eRDMA NCCL 2.30.7 would use TCP sockets: libibverbs.so.1 opens no liberdma-rdmav*.so"
    )


@pytest.mark.parametrize(
    ("environment", "outcome", "state", "words"),
    [
        ({"NCCL_NET": ""}, "tcp", "passed", "would use TCP sockets: NCCL's own"),
        ({"NCCL_NET": "Socket"}, "tcp", "passed", "would use TCP sockets: NCCL's own"),
        ({"FI_PROVIDER": "^"}, "tcp", "passed", "would use TCP sockets: Libfabric of libnccl-net-ofi.so, over"),
        (NONE, "end", "failed", "Libfabric asks for libnccl-net-ofi.so alone, which FI_PROVIDER=efa keeps from TCP"),
        ({"NCCL_NET": "IB"}, "end", "failed", "NCCL_NET=IB asks for a network that needs a fabric"),
    ],
)
def test_without_a_fabric_only_sockets_are_no_fault(
    environment: Mapping[str, str], outcome: str, state: str, words: str
) -> None:
    chain = answer(image(plugin(*NO_DEVICE), environment), "none", "")
    assert chain.answer.startswith("Without a fabric NCCL 2.30.7 would ")
    assert (chain.outcome, chain.state, words in chain.answer) == (outcome, state, True)


OTHER = ["efa", "shm", "ofi_hook_perf"]


@pytest.mark.parametrize(
    ("environment", "providers", "outcome", "words"),
    [
        (NONE, ["efa", "tcp"], "end", "alone, which FI_PROVIDER=efa keeps from InfiniBand"),
        ({"FI_PROVIDER": "tcp"}, ["efa", "tcp"], "tcp", "alone, which FI_PROVIDER=tcp keeps from InfiniBand"),
        ({"FI_PROVIDER": "^"}, ["efa", "tcp"], "tcp", "whose libfabric has no provider for InfiniBand, only efa, tcp"),
        ({"FI_PROVIDER": "^"}, OTHER, "end", "whose libfabric has no provider for InfiniBand, only efa, shm"),
        ({"FI_PROVIDER": "^"}, ["efa", "verbs"], "unknown", "not known whether libnccl-net-ofi.so finds InfiniBand"),
        ({"NCCL_NET": ""}, ["efa", "tcp"], "fabric", "would use InfiniBand: libibverbs"),
        ({"NCCL_NET": "", "FI_PROVIDER": "^"}, ["efa", "tcp"], "fabric", "if it starts, else NCCL's own"),
    ],
)
def test_the_network_of_the_plugin_for_efa_is_none_of_infiniband(
    environment: Mapping[str, str], providers: list[str], outcome: str, words: str
) -> None:
    libfabric = StartedLibrary(path=LIBFABRIC, providers=providers, mapped=[LIBFABRIC])
    chain = answer(with_mlx5(image(plugin(*NO_DEVICE), environment, libfabric=libfabric)), "ib", "")
    assert (chain.outcome, words in chain.answer) == (outcome, True), chain.answer


def with_mlx5(inspection: Inspection) -> Inspection:
    """Return an image with the verbs provider of InfiniBand, as rdma-core installs it."""
    tree, network = inspection.measured.tree, inspection.measured.network
    assert tree
    assert network
    libraries = {**tree.files.library_files, MLX5: LibraryFile(size=90000)}
    opened = {**network.verbs.opened, MLX5: ""}
    files = {"measured.tree.files.library_files": libraries}
    return changed(inspection, {**files, "measured.network.verbs.opened": opened})


def test_a_plugin_that_starts_over_tcp_comes_before_nccls_own_network() -> None:
    run = plugin("3 NET/OFI Selected Provider is tcp", result=0, devices=1)
    chain = answer(with_mlx5(image(run, {"NCCL_NET": "", "FI_PROVIDER": "^"})), "ib", "")
    assert chain.outcome == "tcp"
    assert "NCCL takes libnccl-net-ofi.so before its own network, and it starts over TCP of libfabric" in chain.answer


def test_a_plugin_that_crashes_ends_a_job_that_names_no_network() -> None:
    assert answer(image(plugin(*FIRST, result=None, end_reason="SIGSEGV"), {"NCCL_NET": ""})).outcome == "end"


def test_an_image_without_any_network_says_what_it_lacks() -> None:
    case = image(plugin(*NO_DEVICE), {"NCCL_NET": ""})
    tree = case.measured.tree
    assert tree
    library_files = {p: file for p, file in tree.files.library_files.items() if "-rdmav" not in p}
    case = changed(
        case,
        {
            "measured.tree.files.library_files": library_files,
            "measured.tree.libraries.plugins": {},
            "expected.fabric": None,
        },
    )
    chain = answer(case, "", "")
    assert "has no driver for InfiniBand, RoCE or eRDMA, and no plugin for EFA" in chain.answer
    assert answer(changed(case, {"measured.tree": None}), "", "").outcome != "fabric"


def test_what_was_not_run_is_read() -> None:
    chain = answer(changed(image(plugin()), {"measured.network": None}))
    assert chain.outcome == "fabric"
    assert {link.how for link in chain.links if link.name in ("plugin", "libfabric", "libefa")} == {"read"}
    assert chain.answer.endswith("(read, not run)")
    assert "read, not run: settings, plugin, libfabric, libefa, verbs provider" in chain.evidence


def without_nccl(plugin_file: str) -> Inspection:
    """Return an image whose torch comes as the job starts, and NCCL with it."""
    case = image(plugin())
    tree = case.measured.tree
    assert tree
    net = tree.libraries.resolved["libnccl-net.so"].model_copy(update={"file": plugin_file, "error": ""})
    nothing = tree.libraries.resolved["libnccl.so.2"].model_copy(update={"file": ""})
    resolved = {**tree.libraries.resolved, "libnccl-net.so": net, "libnccl.so.2": nothing}
    return changed(
        case,
        {
            "measured.tree.libraries.nccl": {},
            "measured.tree.libraries.resolved": resolved,
            "measured.network": None,
            "measured.torch": None,
        },
    )


def test_an_image_whose_nccl_comes_as_the_job_starts_is_read_as_far_as_it_goes() -> None:
    tree = image(plugin()).measured.tree
    assert tree
    chain = answer(without_nccl(tree.libraries.resolved["libnccl-net.so"].file))
    assert chain.outcome == "unknown"
    assert chain.answer == (
        "On p5.48xlarge it cannot be said what NCCL would use: "
        "no libnccl is there, and which one comes as the job starts is not known"
    )
    assert {"plugin", "libfabric"} <= {link.name for link in chain.links}


def test_what_only_the_missing_nccl_would_find_is_not_missed() -> None:
    """As in a conda environment, whose plugin lies beside NCCL."""
    chain = answer(without_nccl(""))
    assert [link.name for link in chain.links] == ["NCCL"]
    assert chain.outcome == "unknown"


def test_a_plugin_that_no_name_leads_to_is_missing() -> None:
    error = "libnccl-net.so: cannot open shared object file: No such file or directory"
    chain = answer(image(plugin(path="", error=error), {"NCCL_NET": ""}))
    assert chain.answer.endswith(f"NCCL finds no libnccl-net.so; there is {PLUGIN}")
    case = image(plugin(path="", error=error), {"NCCL_NET": "", "NCCL_NET_PLUGIN": "aws-ofi"})
    sentence = "NCCL_NET_PLUGIN=aws-ofi asks for libnccl-net.so, which is not there; there is"
    assert sentence in answer(case).answer
    case = changed(case, {"measured.tree.libraries.plugins": {}})
    assert answer(case).answer.endswith("and the image has no network plugin, as aws-ofi-nccl is for EFA")


@pytest.mark.parametrize(
    ("value", "outcome", "words"),
    [
        ("ofi", "unknown", "60-network.sh:2 (NCCL_NET_PLUGIN=ofi) chooses the plugin"),
        ("spcx", "end", "NCCL finds no libnccl-net.so"),
    ],
)
def test_a_start_script_chooses_a_plugin_that_is_in_the_image(value: str, outcome: str, words: str) -> None:
    error = "libnccl-net.so: cannot open shared object file: No such file or directory"
    chain = answer(with_start_script(image(plugin(path="", error=error)), value))
    assert (chain.outcome, words in chain.answer) == (outcome, True)


def test_a_plugin_that_opens_what_is_not_there_is_named_where_no_fabric_is_asked_for() -> None:
    """As an aws-ofi-nccl that opens libcudart.so in an image whose runtime has its number in the name."""
    case = image(plugin(*NO_RUNTIME), {"NCCL_NET": ""})
    tree = case.measured.tree
    assert tree
    nothing = tree.libraries.resolved["libnccl.so.2"].model_copy(update={"path": "", "file": ""})
    about = PluginFile(version="1.17.3", exports={"ncclNetPlugin_v": [9]}, opens=["libcudart.so"])
    resolved = {**tree.libraries.resolved, "libcudart.so": nothing}
    runtime = {"/usr/local/cuda/lib64/libcudart.so.12": LibraryFile(size=700000)}
    case = changed(
        case,
        {
            "measured.tree.libraries.plugins": {PLUGIN: about},
            "measured.tree.libraries.resolved": resolved,
            "measured.tree.files.library_files": {**tree.files.library_files, **runtime},
            "expected.fabric": None,
        },
    )
    chain = answer(case, "", "")
    assert chain.outcome == "tcp"
    assert chain.answer.endswith(
        f"{PLUGIN} does not start: it opens libcudart.so, and the image has only libcudart.so.12"
    )


def test_an_image_that_shows_no_fabric_is_asked_for_one() -> None:
    case = image(plugin(*NO_DEVICE), {"NCCL_NET": "AWS Libfabric"})
    chain = answer(changed(case, {"expected.fabric": None}), "", "")
    assert chain.outcome == "unknown"
    assert chain.answer.endswith("the image shows no fabric that it is for: ask with --fabric efa, erdma or ib")
