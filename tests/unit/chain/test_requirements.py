"""What the plugin requires beside its libraries, as far as the image decides it."""

import pytest

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.network_chain import Chain
from tests.support.chain_parts import answer, image, plugin

STARTED = plugin("3 NET/OFI No eligible providers were found")
NO_GDRCOPY = "no GDRCopy (libgdrapi.so), which GPU-initiated networking alone needs"


def value(chain: Chain, name: str) -> str:
    return next((link.value for link in chain.links if link.name == name), "")


def with_gdrcopy(file: str) -> Inspection:
    """Return an image whose loader finds GDRCopy's library in this file; "" for none."""
    case = image(STARTED)
    tree = case.measured.tree
    assert tree
    library = tree.libraries.resolved["libefa.so.1"].model_copy(update={"path": file, "file": file})
    resolved = {**tree.libraries.resolved, "libgdrapi.so": library}
    tree = tree.model_copy(update={"libraries": tree.libraries.model_copy(update={"resolved": resolved})})
    return case.model_copy(update={"measured": case.measured.model_copy(update={"tree": tree})})


@pytest.mark.parametrize(
    ("file", "words"), [("", NO_GDRCOPY), ("/usr/lib/libgdrapi.so.2.5.1", "GDRCopy libgdrapi.so.2.5.1")]
)
def test_gdrcopy_is_named_with_its_version(file: str, words: str) -> None:
    assert value(answer(with_gdrcopy(file)), "requirements") == words


def test_what_the_node_decides_is_said_apart() -> None:
    chain = answer(with_gdrcopy(""))
    assert {link.name: link.how for link in chain.links}["node"] == "facts"
    assert value(chain, "node").startswith(
        "the node and the job decide: devices /dev/infiniband, ulimits memlock=-1, shm"
    )
