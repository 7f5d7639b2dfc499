"""What the plugin requires beside its libraries, as far as the image decides it."""

import pytest

from rdma_images.inspection.chain import Chain
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import PluginFile, Settings
from tests.support.chain_parts import PLUGIN, answer, image, plugin

P5 = "/opt/amazon/ofi-nccl/share/aws-ofi-nccl/xml/p5.48xl-topo.xml"
P4D = "/opt/amazon/ofi-nccl/share/aws-ofi-nccl/xml/p4d-24xl-topo.xml"
STARTED = plugin("3 NET/OFI No eligible providers were found")
NO_GDRCOPY = "no GDRCopy (libgdrapi.so), which GPU-initiated networking alone needs"


def value(chain: Chain, name: str) -> str:
    return next((link.value for link in chain.links if link.name == name), "")


def with_topologies(faults: dict[str, str], gdrcopy: str = "") -> Inspection:
    """Return an image whose plugin gives NCCL the topologies of P4D and P5, those in `faults` with a fault."""
    case = image(STARTED)
    tree = case.measured.tree
    assert tree
    about = PluginFile(project="aws-ofi-nccl", exports={"ncclNetPlugin_v": [12]}, topologies=[P4D, P5])
    library = tree.libraries.resolved["libefa.so.1"].model_copy(update={"path": gdrcopy, "file": gdrcopy})
    update = {
        "plugins": {PLUGIN: about},
        "topologies": faults,
        "resolved": {**tree.libraries.resolved, "libgdrapi.so": library},
    }
    tree = tree.model_copy(update={"libraries": tree.libraries.model_copy(update=update)})
    return case.model_copy(update={"measured": case.measured.model_copy(update={"tree": tree})})


@pytest.mark.parametrize(
    ("instance", "faults", "words"),
    [
        ("p5.48xlarge", {}, f"topology p5.48xl-topo.xml; {NO_GDRCOPY}"),
        (
            "p4d.24xlarge",
            {P4D: "absent"},
            "topology p4d-24xl-topo.xml is not there, and NCCL goes on without it; no GDR",
        ),
        ("p5.48xlarge", {P5: "no arch"}, "topology p5.48xl-topo.xml has processors without arch; no GDR"),
        ("p5en.48xlarge", {}, NO_GDRCOPY),
        ("", {P4D: "absent"}, NO_GDRCOPY),
    ],
)
def test_the_topology_of_the_instance_type_is_named(instance: str, faults: dict[str, str], words: str) -> None:
    chain = answer(with_topologies(faults), "efa", instance)
    assert chain.state == "passed"
    assert value(chain, "requirements").startswith(words)


def test_a_topology_that_a_variable_names_takes_the_place_of_the_plugins() -> None:
    case = with_topologies({})
    subject = case.subject.model_copy(update={"environment": {**case.subject.environment, "NCCL_TOPO_FILE": "/x.xml"}})
    settings = Settings(assigned=[], absent=["/x.xml"], without_path={})
    measured = case.measured.model_copy(update={"settings": settings})
    chain = answer(case.model_copy(update={"subject": subject, "measured": measured}))
    words = "NCCL_TOPO_FILE=/x.xml is not there, and NCCL goes on without it; "
    assert value(chain, "requirements").startswith(words)


def test_gdrcopy_is_named_with_its_version() -> None:
    chain = answer(with_topologies({}, "/usr/lib/libgdrapi.so.2.5.1"), "efa", "")
    assert value(chain, "requirements") == "GDRCopy libgdrapi.so.2.5.1"


def test_what_the_node_decides_is_said_apart() -> None:
    chain = answer(with_topologies({}))
    assert {link.name: link.how for link in chain.links}["node"] == "facts"
    assert value(chain, "node").startswith(
        "the node and the job decide: devices /dev/infiniband, ulimits memlock=-1, shm"
    )
