"""The list of environment variables."""

import pytest

from rdma_images.facts import facts_file
from rdma_images.facts.environment import Environment, KnownVariables


@pytest.fixture(scope="module")
def inventory() -> KnownVariables:
    return facts_file.read(KnownVariables)


def test_every_variable_with_an_effect_is_one_that_is_read(inventory: KnownVariables) -> None:
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
        ("NCCL_TIMEOUT", None),
        ("PATH", None),
    ],
)
def test_a_misspelt_name_is_distinguished_from_another(inventory: KnownVariables, name: str, meant: str | None) -> None:
    assert inventory.closest_name(name) == meant
