"""The probe of settings, on files made for it and on this machine's loader."""

from pathlib import Path

import pytest

from rdma_images.validate import run_probes, transport
from rdma_images.validate.probes import loader, measure, settings
from rdma_images.validate.probes.rootfs import Root

TEXTS = {
    "/etc/nccl.conf": "# NCCL_NET=Socket\nNCCL_DEBUG=INFO\nexport NCCL_ALGO=Ring\nHOME=/root\n",
    "/opt/amazon/efa/etc/libfabric.conf": "FI_PROVIDER=tcp\n",
    "/etc/profile.d/site.sh": "if true; then export NCCL_NET='Socket' # why\nfi\nFI_HMEM=system; NCCL_DEBUG=WARN\n"
    "setenv FI_HOOK perf\n",
    "/root/.nccl.conf": "NCCL_DEBUG=INFO\r\n",
    "/etc/ld.so.preload": "# why\n/opt/a.so:/opt/b.so\n",
    "/opt/nvidia/entrypoint.d/60-network.sh": "export NCCL_NET_PLUGIN=ofi\n",
    "/etc/environment": 'LD_LIBRARY_PATH="/opt/a:/opt/b"\necho NCCL_NET=IB\n',
}


def test_what_files_set_is_read_with_its_line() -> None:
    assignments = settings.find_assignments(TEXTS.items(), {})
    assert [
        (assignment["file"], assignment["line"], assignment["name"], assignment["value"], assignment["reader"])
        for assignment in assignments
    ] == [
        ("/etc/nccl.conf", 2, "NCCL_DEBUG", "INFO", "nccl"),
        ("/etc/nccl.conf", 3, "export NCCL_ALGO", "Ring", "nccl"),
        ("/opt/amazon/efa/etc/libfabric.conf", 1, "FI_PROVIDER", "tcp", "libfabric"),
        ("/etc/profile.d/site.sh", 1, "NCCL_NET", "Socket", "shell"),
        ("/etc/profile.d/site.sh", 3, "FI_HMEM", "system", "shell"),
        ("/etc/profile.d/site.sh", 3, "NCCL_DEBUG", "WARN", "shell"),
        ("/etc/profile.d/site.sh", 4, "FI_HOOK", "perf", "shell"),
        ("/root/.nccl.conf", 1, "NCCL_DEBUG", "INFO\r", "nccl"),
        ("/etc/ld.so.preload", 2, "LD_PRELOAD", "/opt/a.so", "loader"),
        ("/etc/ld.so.preload", 2, "LD_PRELOAD", "/opt/b.so", "loader"),
        ("/opt/nvidia/entrypoint.d/60-network.sh", 1, "NCCL_NET_PLUGIN", "ofi", "start script"),
        ("/etc/environment", 1, "LD_LIBRARY_PATH", "/opt/a:/opt/b", "shell"),
    ]


def test_files_that_variables_name_and_that_are_not_there(tmp_path: Path) -> None:
    existing = tmp_path / "topology.xml"
    existing.touch()
    environment = {"NCCL_TOPO_FILE": str(existing), "NCCL_GRAPH_FILE": "/no/graph.xml", "NCCL_NET_PLUGIN": "ofi"}
    environment |= {"LD_LIBRARY_PATH": f"{tmp_path}:/no/lib::$HOME/lib", "LD_PRELOAD": "libjemalloc.so /no/lib.so"}
    assert settings.missing_files(environment, [], lambda path: Path(path).exists()) == [
        "/no/graph.xml",
        "/no/lib.so",
        "/no/lib",
    ]


def test_this_process_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "start.sh"
    script.write_text("#!/bin/sh\nexport NCCL_IB_DISABLE=1\n")
    conf = tmp_path / "nccl.settings"
    conf.write_text("NCCL_NET=Socket\n")
    monkeypatch.setenv("NCCL_CONF_FILE", str(conf))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assignments = measure.settings_of_system([str(script), "sh", "-c", "export FI_PROVIDER=tcp"])
    mine = [(assignment["file"], assignment["name"]) for assignment in assignments["assigned"]]
    assert (str(conf), "NCCL_NET") in mine
    assert (str(script), "NCCL_IB_DISABLE") in mine
    assert (settings.ENTRY, "FI_PROVIDER") in mine
    assert set(assignments["without_path"]) == set(settings.loader_names({})) - {"libcuda.so.1"}
    assert assignments["without_path"]["libibverbs.so.1"] == loader.resolve_name("libibverbs.so.1")["file"]
    assert set(assignments["absent"]) <= set(assignments["loader_folders"])


def test_the_words_of_an_entry_point_travel() -> None:
    line = "export NCCL_NET='Socket'; exec python \"$@\""
    inspection = run_probes.probe(
        transport.host("local://", 60), ("settings",), entry=("sh", "-c", line, "/no/such file")
    )
    assert inspection.settings
    assert [(s.file, s.name, s.value) for s in inspection.settings.assigned if s.file == settings.ENTRY] == [
        (settings.ENTRY, "NCCL_NET", "Socket")
    ]


def test_a_program_is_no_script() -> None:
    assert settings.script_text(Root(), "/bin/sh") is None
