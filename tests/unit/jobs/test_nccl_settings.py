"""What NCCL is set to on a node."""

import os
import pwd
from pathlib import Path

import pytest

from rdma_images.jobs.node import nccl_settings
from tests.support.node_files import write_file


def test_the_files_of_nccl_set_what_no_variable_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in NVIDIA/nccl issue 1008: /etc/nccl.conf of the machine's image names a graph."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    for name in ("NCCL_CONF_FILE", "NCCL_GRAPH_FILE", "NCCL_ALGO"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_PROTO", "Simple")
    write_file(tmp_path / home.strip("/") / ".nccl.conf", "NCCL_ALGO=Ring\n# a comment\n")
    write_file(tmp_path / "etc/nccl.conf", "NCCL_GRAPH_FILE=/opt/graph.xml\nNCCL_ALGO=Tree\nNCCL_PROTO=LL\n")
    assert [sentence for _, _, sentence in nccl_settings.set_variables_of_files(str(tmp_path))] == [
        f"{tmp_path}{home}/.nccl.conf sets NCCL_ALGO=Ring",
        f"{tmp_path}/etc/nccl.conf sets NCCL_GRAPH_FILE=/opt/graph.xml",
    ]
    assert "NCCL_ALGO=Ring, NCCL_GRAPH_FILE=/opt/graph.xml, " in nccl_settings.describe_settings()
    assert "NCCL_PROTO=Simple" in nccl_settings.describe_settings()
    monkeypatch.setenv("NCCL_CONF_FILE", "/none")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    assert nccl_settings.nccl_files("") == ["/none", "/etc/nccl.conf"]
    assert "NCCL_DEBUG" not in nccl_settings.describe_settings()
