"""Which plugins an NCCL opens, by the rule of its own version."""

import pytest

from rdma_images.chain.nccl_environment import nccl_environment, plugin_names
from rdma_images.inspection.measurements import AssignedVariable, EntryPointChanges, Settings
from tests.support.case_parts import recorded

DEFAULT = ["libnccl-net.so"]


@pytest.mark.parametrize(
    ("version", "value", "names"),
    [
        ("2.18.5", None, DEFAULT),
        ("2.18.5", "", DEFAULT),
        ("2.18.5", "ofi", ["libnccl-net-ofi.so"]),
        ("2.20.3", "libnccl-net.so", ["libnccl-net-libnccl-net.so.so"]),
        ("2.20.5", "ofi", ["ofi", "libnccl-net-ofi.so"]),
        ("2.26.6", "a,b", ["a,b", "libnccl-net-a,b.so"]),
        ("2.26.6", "none", ["none", "libnccl-net-none.so"]),
        ("2.27.3", "ofi", ["libnccl-net-ofi.so"]),
        ("2.27.3", "/opt/x/libnccl-net.so", ["libnccl-net-/opt/x/libnccl-net.so.so"]),
        ("2.27.5", "/opt/x/libnccl-net.so", ["/opt/x/libnccl-net.so"]),
        ("2.27.7", "a,libnccl-net.so", ["a", "libnccl-net-a.so", "libnccl-net.so"]),
        ("2.30.7", "None", []),
        ("2.30.7", "", []),
        ("2.30.7", None, DEFAULT),
    ],
)
def test_the_names_that_a_version_opens(version: str, value: str | None, names: list[str]) -> None:
    assert plugin_names(version, {} if value is None else {"NCCL_NET_PLUGIN": value}) == names


def test_what_ncclconf_sets_yields_to_the_environment_and_to_the_users_file() -> None:
    case = recorded()
    lines = {"/etc/nccl.conf": "2", "/root/.nccl.conf": "1"}
    names = ("NCCL_NET", "NCCL_DEBUG")
    assigned = [
        AssignedVariable(file=file, line=1, name=name, value=value, reader="nccl")
        for file, value in lines.items()
        for name in names
    ]
    settings = Settings(assigned=assigned, absent=[])
    measured = case.measured.model_copy(
        update={"settings": settings, "entry": EntryPointChanges(given={"NCCL_NET": "0"})}
    )
    environment = nccl_environment(case.model_copy(update={"measured": measured}))
    assert (environment["NCCL_NET"], environment["NCCL_DEBUG"]) == ("0", "1")
