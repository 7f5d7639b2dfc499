"""The probe of programs, on a small tree of files."""

from pathlib import Path

import pytest

from rdma_images.validate.probes import programs
from rdma_images.validate.probes.rootfs import Root

PATH = "/opt/venv/bin:/usr/bin"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Return a tree with a shell, a Python, and scripts of each kind."""
    files = {
        "/usr/bin/sh": b"\x7fELF",
        "/usr/bin/python3.12": b"\x7fELF",
        "/usr/include/python3.12/Python.h": b"",
        "/usr/local/cuda/bin/nvcc": b"\x7fELF",
        "/start": b'#!/usr/bin/sh\n. /etc/more\nexec "$@"\n',
        "/app/run.sh": b"#!/usr/bin/sh\r\ntrue\r\n",
        "/opt/venv/bin/ray": b"#!/gone/bin/python\n",
    }
    for name, content in files.items():
        path = tmp_path / name[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755)
    (tmp_path / "usr/bin/python3").symlink_to("python3.12")
    (tmp_path / "app/data").write_bytes(b"text")
    return Root(str(tmp_path))


@pytest.mark.parametrize(
    ("entry", "faults"),
    [
        (["/start", "ray", "start"], [("/start", ""), ("/opt/venv/bin/ray", programs.NO_INTERPRETER)]),
        (["./run.sh"], [("/app/run.sh", programs.CARRIAGE_RETURN)]),
        (["sh", "run.sh"], [("/usr/bin/sh", ""), ("/app/run.sh", programs.CARRIAGE_RETURN)]),
        (["sh", "-c", "A=1 exec server --port 1"], [("/usr/bin/sh", ""), ("server", programs.ABSENT)]),
        (["sh", "-c", "cd /app && ./x"], [("/usr/bin/sh", "")]),
        (["sh", "-c", "cd /app; torchrun train.py"], [("/usr/bin/sh", ""), ("torchrun", programs.ABSENT)]),
        (["sh", "-c", "PATH=/x; torchrun train.py"], [("/usr/bin/sh", "")]),
        (["python3", "-m", "server"], [("/usr/bin/python3", "")]),
        (["python3", "train.py"], [("/usr/bin/python3", ""), ("/app/train.py", programs.ABSENT)]),
        (["/app/data"], [("/app/data", programs.NO_RIGHT)]),
        (["/app"], [("/app", programs.FOLDER)]),
        (["server"], [("server", programs.ABSENT)]),
    ],
)
def test_what_an_entry_point_starts(root: Root, entry: list[str], faults: list[tuple[str, str]]) -> None:
    started_programs = list(programs.started(root, PATH, entry, "/app"))
    assert [(program["program"], program["fault"]) for program in started_programs] == faults


def test_an_interpreter_that_is_a_link_to_what_is_not_there(root: Root, tmp_path: Path) -> None:
    python = tmp_path / "app/.venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/root/.local/share/uv/python/bin/python3.13")
    script = python.with_name("server")
    script.write_text("#!/app/.venv/bin/python\n")
    script.chmod(0o755)
    (program,) = programs.started(root, PATH, ["/app/.venv/bin/server"], "/app")
    assert (program["fault"], program["target"]) == (
        programs.NO_INTERPRETER,
        "/root/.local/share/uv/python/bin/python3.13",
    )


def test_a_relative_path_without_a_folder_is_not_judged(root: Root) -> None:
    assert list(programs.started(root, PATH, ["./run.sh"], "")) == []


def test_the_toolkit_and_headers_are_where_compilers_look(root: Root) -> None:
    measured = programs.programs(root, {"PATH": PATH}, [], "/", [])
    assert (measured["cuda_home"], measured["nvcc"]) == ("/usr/local/cuda", "/usr/local/cuda/bin/nvcc")
    assert measured["python_headers"] == {"/usr/include/python3.12": True}
    assert measured["unstartable"] == {"/gone/bin/python": ["/opt/venv/bin/ray"]}
    assert programs.cuda_home(root, {"CUDA_HOME": "/opt/cuda/"}) == "/opt/cuda"
