"""The probe of settings, on files made for it and on this machine's loader."""

import os
from pathlib import Path

import pytest

from rdma_images.inspection.measurements import Measured
from rdma_images.validate import run_probes, transport
from rdma_images.validate.probes import loader, measure, settings
from rdma_images.validate.probes.rootfs import Root

PACKAGES = "/opt/venv/lib/python3.12/site-packages"
TEXTS = {
    "/etc/nccl.conf": "# NCCL_NET=Socket\nNCCL_DEBUG=INFO\nexport NCCL_ALGO=Ring\nHOME=/root\n",
    "/opt/amazon/efa/etc/libfabric.conf": "FI_PROVIDER=tcp\n",
    "/etc/profile.d/site.sh": "if true; then export NCCL_NET='Socket' # why\nfi\nFI_HMEM=system; NCCL_DEBUG=WARN\n"
    "setenv FI_HOOK perf\n",
    "/root/.nccl.conf": "NCCL_DEBUG=INFO\r\n",
    f"{PACKAGES}/sitecustomize.py": "import os\n"
    "# os.environ['NCCL_ALGO'] = 'Ring'\n"
    "os.environ['NCCL_IB_DISABLE'] = '1'; os.putenv('FI_HOOK', 'perf')\n"
    "if os.environ['NCCL_NET'] == 'IB' or os.environ.get('NCCL_PROTO', 'LL'): os.environ.update(NCCL_DEBUG='WARN')\n",
    f"{PACKAGES}/site.pth": "import os; os.environ.setdefault('FI_PROVIDER', 'tcp')\n",
    "/etc/ld.so.preload": "# why\n/opt/a.so:/opt/b.so\n",
    "/opt/amazon/openmpi/etc/openmpi-mca-params.conf": "# btl = x\npml = ucx  # why\n"
    "mca_base_env_list = FI_PROVIDER=tcp;HOME=/x\n",
    "/etc/security/limits.d/site.conf": "* hard memlock 64\n@staff soft memlock 64\nroot - memlock unlimited\n",
    "/root/.bashrc": "ulimit -l 64; ulimit -Sl unlimited\nulimit -n 64 # ulimit -l 1\n",
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
        (f"{PACKAGES}/sitecustomize.py", 3, "NCCL_IB_DISABLE", "1", "python"),
        (f"{PACKAGES}/sitecustomize.py", 3, "FI_HOOK", "perf", "python"),
        (f"{PACKAGES}/sitecustomize.py", 4, "NCCL_DEBUG", "WARN", "python"),
        (f"{PACKAGES}/site.pth", 1, "FI_PROVIDER", "tcp", "python"),
        ("/etc/ld.so.preload", 2, "LD_PRELOAD", "/opt/a.so", "loader"),
        ("/etc/ld.so.preload", 2, "LD_PRELOAD", "/opt/b.so", "loader"),
        ("/opt/amazon/openmpi/etc/openmpi-mca-params.conf", 2, "OMPI_MCA_pml", "ucx", "mpi"),
        ("/opt/amazon/openmpi/etc/openmpi-mca-params.conf", 3, "FI_PROVIDER", "tcp", "mpi"),
        ("/etc/security/limits.d/site.conf", 1, "memlock", "64", "limits"),
        ("/etc/security/limits.d/site.conf", 3, "memlock", "unlimited", "limits"),
        ("/root/.bashrc", 1, "ulimit -l", "64", "shell"),
        ("/root/.bashrc", 1, "ulimit -l", "unlimited", "shell"),
        ("/etc/environment", 1, "LD_LIBRARY_PATH", "/opt/a:/opt/b", "shell"),
    ]


def test_what_a_script_hands_to_a_job() -> None:
    text = (
        "# NCCL_NET=IB\n"
        "  echo run with NCCL_NET=IB\n"
        "export NCCL_NET=Socket\n"
        "mpirun -x FI_PROVIDER=tcp -x NCCL_DEBUG -n 2 env NCCL_IB_DISABLE='1' python\n"
        'words = ["-x", "NCCL_ALGO=Ring", f"NCCL_PROTO={given}"]\n'
        'if [ "$NCCL_NET" = IB ]; then NCCL_PROTO=$GIVEN; fi\n'
        'os.environ["NCCL_NET_PLUGIN"] = "none"\n'
    )
    assignments = settings.find_assignments([("/opt/train.sh", text)], {}, "launcher")
    assert [
        (assignment["line"], assignment["name"], assignment["value"], assignment["reader"])
        for assignment in assignments
    ] == [
        (3, "NCCL_NET", "Socket", "launcher"),
        (4, "FI_PROVIDER", "tcp", "launcher"),
        (4, "NCCL_IB_DISABLE", "1", "launcher"),
        (5, "NCCL_ALGO", "Ring", "launcher"),
        (7, "NCCL_NET_PLUGIN", "none", "launcher"),
    ]


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/run.sh", True),
        ("/opt/start.sh", True),
        ("/opt/one/two/start.env", True),
        ("/opt/one/two/three/start.sh", False),
        ("/usr/share/start.sh", False),
        ("/usr/local/bin/start.bash", True),
        (f"{PACKAGES}/sagemaker_training/mpi.py", True),
        (f"{PACKAGES}/torch/mpi.py", False),
    ],
)
def test_where_scripts_that_start_jobs_lie(path: str, read: bool) -> None:
    assert bool(settings.LAUNCHERS.fullmatch(path)) == read


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
    activated = tmp_path / "env" / "etc" / "conda" / "activate.d" / "site.sh"
    activated.parent.mkdir(parents=True)
    activated.write_text("export NCCL_NET=Socket\n")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path}/env/bin")
    (tmp_path / "site.pth").write_text("import os; os.environ['NCCL_PROTO'] = 'LL'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assignments = measure.settings_of_system([str(script), "sh", "-c", "export FI_PROVIDER=tcp"])
    mine = [(assignment["file"], assignment["name"]) for assignment in assignments["assigned"]]
    assert (str(conf), "NCCL_NET") in mine
    assert (str(activated), "NCCL_NET") in mine
    assert (str(tmp_path / "site.pth"), "NCCL_PROTO") in mine
    assert (str(script), "NCCL_IB_DISABLE") in mine
    assert (settings.ENTRY, "FI_PROVIDER") in mine
    assert set(assignments["without_path"]) == set(settings.loader_names({})) - {"libcuda.so.1"}
    assert assignments["without_path"]["libibverbs.so.1"] == loader.resolved("libibverbs.so.1")["file"]
    assert set(assignments["absent"]) <= set(assignments["loader_folders"])


def test_the_words_of_an_entry_point_travel() -> None:
    line = "export NCCL_NET='Socket'; exec python \"$@\""
    inspection = run_probes.probe(
        transport.host("local://", 60), ("settings",), entry=("sh", "-c", line, "/no/such file")
    )
    assert isinstance(inspection, Measured)
    assert inspection.settings
    assert [(s.file, s.name, s.value) for s in inspection.settings.assigned if s.file == settings.ENTRY] == [
        (settings.ENTRY, "NCCL_NET", "Socket")
    ]


def test_a_program_is_no_script() -> None:
    assert settings.script_text(Root(), "/bin/sh") is None
