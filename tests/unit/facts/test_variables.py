"""The list of environment variables, and how it is read again from source trees."""

from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.facts import facts_file
from rdma_images.facts.environment import Environment
from rdma_images.facts.variables import Variables
from rdma_images.maintain import variable_names

SOURCES = {
    "nccl": ("src/transport/net_ib/init.cc", 'NCCL_PARAM(IbDisable, "IB_DISABLE", 0);\ngetenv("NCCL_NEW_WORD");'),
    "aws-ofi-nccl": ("include/nccl_ofi_param.h", 'OFI_NCCL_PARAM(PROTOCOL, protocol, "PROTOCOL", PROTOCOL::SENDRECV);'),
    "libfabric": ("prov/efa/src/efa_env.c", 'fi_param_define(&efa_prov, "iface", FI_PARAM_STRING,\n "A list");'),
    "rdma-core": ("libibverbs/init.c", 'if (check_env("RDMAV_FORK_SAFE") || check_env("IBV_FORK_SAFE"))'),
}
READ = {
    "nccl": {"NCCL_IB_DISABLE", "NCCL_NEW_WORD"},
    "aws-ofi-nccl": {"OFI_NCCL_PROTOCOL"},
    "libfabric": {"FI_EFA_IFACE"},
    "rdma-core": {"RDMAV_FORK_SAFE", "IBV_FORK_SAFE"},
}


@pytest.fixture(scope="module")
def inventory() -> Variables:
    return facts_file.read(Variables)


@pytest.mark.parametrize("library", variable_names.PATTERNS)
def test_a_source_tree_says_what_it_reads(tmp_path: Path, inventory: Variables, library: str) -> None:
    name, text = SOURCES[library]
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    assert variable_names.read_names(tmp_path, library) == READ[library]
    assert variable_names.compare_variables(tmp_path, library, inventory).new == (
        ("NCCL_NEW_WORD",) if library == "nccl" else ()
    )


def test_another_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="name the root of nccl's source tree"):
        variable_names.read_names(tmp_path, "nccl")
    with pytest.raises(RefusedError, match="nothing is known"):
        variable_names.read_names(tmp_path, "nvcl")


def test_every_variable_with_an_effect_is_one_that_is_read(inventory: Variables) -> None:
    rows = facts_file.read(Environment).variables.values()
    assert {row.name for row in rows} - inventory.names == set()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_IB_DISABLED", "NCCL_IB_DISABLE"),
        ("NCCL_SOCKET_IF_NAME", "NCCL_SOCKET_IFNAME"),
        ("FI_PROVIDERS", "FI_PROVIDER"),
        ("NCCL_OFI_PROTOCOL", "OFI_NCCL_PROTOCOL"),
        ("NCCL_IB_DISABLE", None),
        ("NCCL_HOME", None),
        ("PATH", None),
    ],
)
def test_a_misspelt_name_is_told_from_another(inventory: Variables, name: str, meant: str | None) -> None:
    assert inventory.closest_name(name) == meant
