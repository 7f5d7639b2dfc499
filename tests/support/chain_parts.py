"""The recorded image as if it had a real plugin, and what its chain says."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel

from rdma_images.chain import compute_chain
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import LogLine, StartedLibrary, StartedNetwork
from rdma_images.inspection.network_chain import Chain
from tests.support.case_parts import recorded

PLUGIN, LIBFABRIC = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "/opt/amazon/efa/lib/libfabric.so.1.27.0"
EFA = "/usr/lib/x86_64-linux-gnu/libefa.so.1.3.56.1"
NONE: Mapping[str, str] = {}
Model = TypeVar("Model", bound=BaseModel)


def changed(model: Model, changes: Mapping[str, object]) -> Model:
    """Return a copy of `model` with other values at dotted paths, as "measured.network"."""
    for path, value in changes.items():
        name, _, rest = path.partition(".")
        model = model.model_copy(update={name: changed(getattr(model, name), {rest: value}) if rest else value})
    return model


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
    providers = [p for p in tree.files.library_files if p.endswith("libefa-rdmav34.so")]
    network = StartedNetwork(
        plugins=[run],
        libfabric=StartedLibrary(path=LIBFABRIC, providers=["efa", "tcp"], mapped=[LIBFABRIC, EFA]),
        verbs=StartedLibrary(path="/usr/lib/libibverbs.so.1", opened=dict.fromkeys(providers, "")),
        has_gpu=False,
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


def answer(inspection: Inspection, fabric: str = "efa", instance: str = "p5.48xlarge") -> Chain:
    chain = compute_chain(inspection, fabric, instance)
    assert chain
    return chain
