"""The answer, and the first link that breaks, from what plugins and libraries said when they were run."""

from collections.abc import Mapping

import pytest

from rdma_images.chain import compute
from rdma_images.core.errors import RefusedError
from rdma_images.inspection.chain import Chain
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import AssignedVariable, LogLine, Settings, StartedLibrary, StartedNetwork
from tests.support.case_parts import recorded

PLUGIN, LIBFABRIC = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "/opt/amazon/efa/lib/libfabric.so.1.27.0"
EFA = "/usr/lib/x86_64-linux-gnu/libefa.so.1.3.56.1"
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
WOULD = "libnccl-net-ofi.so 1.21.1 (net v12, tuner v6) → libfabric 2.1.0 → efa → libefa 1.3.56.1"
NONE: Mapping[str, str] = {}


def log(*lines: str) -> list[LogLine]:
    return [LogLine(level=int(line[0]), text=line[2:]) for line in lines]


def plugin(*lines: str, **update: object) -> StartedLibrary:
    run = StartedLibrary(
        name="libnccl-net.so",
        path=PLUGIN,
        interfaces={"ncclNetPlugin_v": 12, "ncclTunerPlugin_v": 6},
        network="Libfabric",
        result=2,
        log=log(*lines),
        mapped=[LIBFABRIC, EFA],
    )
    return run.model_copy(update=update)


def image(run: StartedLibrary, environment: Mapping[str, str] = NONE, **update: object) -> Inspection:
    """Return the recorded image, as if it had the real plugin."""
    case = recorded()
    tree = case.measured.tree
    assert tree
    libraries = tree.libraries.model_copy(update={"libfabric": {LIBFABRIC: "2.1.0"}})
    providers = [p for p in tree.files.libraries if p.endswith("libefa-rdmav34.so")]
    network = StartedNetwork(
        plugins=[run],
        libfabric=StartedLibrary(path=LIBFABRIC, providers=["efa", "tcp"], mapped=[LIBFABRIC, EFA]),
        verbs=StartedLibrary(path="/usr/lib/libibverbs.so.1", opened=dict.fromkeys(providers, "")),
        gpu=False,
    )
    network = network.model_copy(update=update)
    labels = {name: value for name, value in case.subject.labels.items() if not name.endswith("rehearsal")}
    subject = case.subject.model_copy(
        update={"environment": {**case.subject.environment, **environment}, "labels": labels}
    )
    measured = case.measured.model_copy(
        update={"network": network, "entry": None, "tree": tree.model_copy(update={"libraries": libraries})}
    )
    return case.model_copy(update={"subject": subject, "measured": measured})


def with_start_script(case: Inspection, value: str) -> Inspection:
    """Return the image with a script of NVIDIA's entry point that names a plugin on line 2."""
    file = "/opt/nvidia/entrypoint.d/60-network.sh"
    line = AssignedVariable(file=file, line=2, name="NCCL_NET_PLUGIN", value=value, reader="launcher")
    settings = Settings(assigned=[line], absent=[], pythons=[], without_path={})
    return case.model_copy(update={"measured": case.measured.model_copy(update={"settings": settings})})


def answer(case: Inspection, fabric: str = "efa", instance: str = "p5.48xlarge") -> Chain:
    chain = compute(case, fabric, instance)
    assert chain
    return chain


@pytest.mark.parametrize(
    ("lines", "note"), [(NO_DEVICE, "until it looked for EFA devices"), (NO_DRIVER, "until it called the GPU driver")]
)
def test_a_plugin_that_lacks_what_no_image_has_would_be_used(lines: tuple[str, ...], note: str) -> None:
    chain = answer(image(plugin(*lines)))
    assert chain.outcome == "fabric"
    assert chain.answer == f"On p5.48xlarge NCCL 2.30.7 would use EFA: {WOULD}"
    assert [note in link.note for link in chain.links if link.name == "plugin"] == [True]
    assert {link.name: link.how for link in chain.links}["provider"] == "executed"


@pytest.mark.parametrize(
    ("run", "environment", "words"),
    [
        (plugin(*REFUSED), NONE, "refuses to start: NET/OFI WARNING: OFI_NCCL_PROTOCOL set to invalid value FOO"),
        (plugin(*NO_RUNTIME), NONE, "Failed to find CUDA Runtime library: libcudart.so"),
        (
            plugin(*FIRST, result=None, ended="SIGSEGV"),
            NONE,
            "crashes as NCCL starts it (SIGSEGV), after: NET/OFI Using",
        ),
        (
            plugin(path="", error="libnccl-net.so: wrong ELF class"),
            NONE,
            "no network plugin can be opened: libnccl-net.so: wrong",
        ),
        (plugin(*NO_DEVICE, interfaces={}), NONE, "none of the network interfaces that NCCL looks for"),
        (plugin(*NO_DEVICE), {"NCCL_NET": "OFI"}, "NCCL_NET=OFI asks for a network of that name, and /opt/amazon"),
        (plugin(*NO_DEVICE), {"NCCL_NET": "IB"}, "NCCL_NET=IB asks for NCCL's own InfiniBand transport"),
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


@pytest.mark.parametrize("value", ["efa", "efa,tcp", "^tcp", ""])
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
    verbs = case.measured.network.verbs.model_copy(update={"opened": {path: "version `IBVERBS_PRIVATE_34' not found"}})
    network = case.measured.network.model_copy(update={"verbs": verbs})
    case = case.model_copy(update={"measured": case.measured.model_copy(update={"network": network})})
    assert "IBVERBS_PRIVATE_34' not found" in answer(case).answer


@pytest.mark.parametrize(("name", "outcome"), [("AWS Libfabric", "unknown"), ("ofi", "unknown"), ("GPUDirect", "end")])
def test_a_rehearsal_answers_to_the_names_of_the_plugin(name: str, outcome: str) -> None:
    """The plugin takes the name of NCCL_NET as it is loaded, where it is one of its names; a stand-in has one name."""
    rehearsed = image(plugin(*NO_DEVICE), {"NCCL_NET": name})
    subject = rehearsed.subject.model_copy(update={"labels": recorded().subject.labels})
    assert answer(rehearsed.model_copy(update={"subject": subject})).outcome == outcome


def test_a_rehearsal_cannot_be_told() -> None:
    rehearsed = image(plugin()).model_copy(update={"subject": recorded().subject})
    assert answer(rehearsed).outcome == "unknown"
    assert "a rehearsal without efa-installer" in answer(rehearsed).answer


def test_an_instance_of_another_fabric_is_refused_beside_the_fabric() -> None:
    with pytest.raises(RefusedError, match=r"p5\.48xlarge has EFA"):
        compute(recorded(), "erdma", "p5.48xlarge")
    with pytest.raises(RefusedError, match="no such fabric"):
        compute(recorded(), "roce")


def test_an_image_of_efa_has_no_way_to_erdma_or_infiniband() -> None:
    chain = answer(image(plugin(*NO_DEVICE), {"NCCL_NET": ""}), "erdma", "")
    assert chain.answer.startswith(
        "On eRDMA NCCL 2.30.7 would use TCP sockets: libibverbs.so.1 finds no liberdma-rdmav*.so"
    )


def test_an_image_of_a_network_that_was_not_asked_for_has_it() -> None:
    chain = answer(image(plugin(*NO_DEVICE), {"NCCL_NET": ""}), "none", "")
    assert chain.answer == "NCCL 2.30.7 would use TCP sockets: no network was asked for"


def test_an_image_without_any_network_says_what_it_lacks() -> None:
    case = image(plugin(*NO_DEVICE), {"NCCL_NET": ""})
    tree = case.measured.tree
    assert tree
    library_files = {p: file for p, file in tree.files.libraries.items() if "-rdmav" not in p}
    tree = tree.model_copy(
        update={
            "files": tree.files.model_copy(update={"libraries": library_files}),
            "libraries": tree.libraries.model_copy(update={"plugins": {}}),
        }
    )
    measured = case.measured.model_copy(update={"tree": tree})
    chain = answer(case.model_copy(update={"measured": measured}), "none", "")
    assert "has no driver for InfiniBand, RoCE or eRDMA, and no plugin for EFA" in chain.answer
    unread = case.measured.model_copy(update={"tree": None})
    assert answer(case.model_copy(update={"measured": unread}), "none", "").outcome != "fabric"


def test_what_was_not_run_is_read() -> None:
    case = image(plugin())
    case = case.model_copy(update={"measured": case.measured.model_copy(update={"network": None})})
    chain = answer(case)
    assert chain.outcome == "fabric"
    assert {link.how for link in chain.links if link.name in ("plugin", "libfabric", "libefa")} == {"read"}
    assert chain.answer.endswith("(read from the image's files, not run)")
    assert "read, not run: settings, plugin, libfabric, libefa, verbs provider" in chain.evidence


def without_nccl(plugin_file: str) -> Inspection:
    """Return an image whose torch comes as the job starts, and NCCL with it."""
    case = image(plugin())
    tree = case.measured.tree
    assert tree
    net = tree.libraries.resolved["libnccl-net.so"].model_copy(update={"file": plugin_file, "error": ""})
    nothing = tree.libraries.resolved["libnccl.so.2"].model_copy(update={"file": ""})
    resolved = {**tree.libraries.resolved, "libnccl-net.so": net, "libnccl.so.2": nothing}
    libraries = tree.libraries.model_copy(update={"nccl": {}, "resolved": resolved})
    update = {"network": None, "torch": None, "tree": tree.model_copy(update={"libraries": libraries})}
    return case.model_copy(update={"measured": case.measured.model_copy(update=update)})


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
    assert chain.answer.endswith("the image has no network plugin: NCCL finds no libnccl-net.so")


@pytest.mark.parametrize(
    ("value", "outcome", "words"),
    [
        ("ofi", "unknown", "60-network.sh:2 (NCCL_NET_PLUGIN=ofi) chooses the plugin"),
        ("spcx", "end", "no network plugin"),
    ],
)
def test_a_start_script_chooses_a_plugin_that_is_in_the_image(value: str, outcome: str, words: str) -> None:
    error = "libnccl-net.so: cannot open shared object file: No such file or directory"
    chain = answer(with_start_script(image(plugin(path="", error=error)), value))
    assert (chain.outcome, words in chain.answer) == (outcome, True)
