"""The bake command, and what a failed build says at its end."""

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import pytest

from rdma_images.build import run_bake
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import Engine
from rdma_images.render import bake
from rdma_images.render.bake import ImageTarget
from tests.support.images import planned_image

# docker buildx 0.13 with the engine of Debian 13, plain progress.
UNKNOWN_PACKAGE = """\
#5 [2/2] RUN <<'SH' (set -eu...)
#5 0.865 Reading package lists...
#5 1.237 E: Unable to locate package nonesuch-package
#5 1.238 Building dependency tree...
#5 ERROR: process "/bin/sh -c set -eu" did not complete successfully: exit code: 100
------
1.237 E: Unable to locate package nonesuch-package
ERROR: failed to solve: process "/bin/sh -c set -eu" did not complete successfully: exit code: 100
"""
FULL_IN_A_STEP = """\
#5 0.099 head: error writing 'standard output': No space left on device
#5 ERROR: process "/bin/sh -c set -eu" did not complete successfully: exit code: 1
"""
FULL_IN_BUILDKIT = """\
#7 1.237 E: Write error - write (28: No space left on device)
#9 ERROR: failed to copy: write /var/lib/x/ingest: no space left on device
ERROR: failed to solve: failed to copy: write /var/lib/x/ingest: no space left on device
"""

COLLECTED = """\
#50 ERROR: failed to prepare extraction snapshot "extract-2": parent snapshot sha256:47a6 does not exist: not found
------
ERROR: failed to solve: failed to prepare extraction snapshot "extract-2": parent snapshot sha256:47a6 does not exist
"""
CLOSED = """\
#12 ERROR: rpc error: code = Unavailable desc = connection error: desc = "transport: only one connection allowed"
------
ERROR: failed to solve: rpc error: code = Unavailable desc = connection error: desc = "only one connection allowed"
"""


@pytest.fixture(autouse=True)
def build_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the log of BuildKit out of the project's folder."""
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")


@pytest.mark.parametrize(
    ("output", "cause", "fix"),
    [
        (UNKNOWN_PACKAGE, ": E: Unable to locate package nonesuch-package", "its last lines above name the step"),
        (FULL_IN_A_STEP, ": head: error writing 'standard output': No space left on device", "free disk space; "),
        (FULL_IN_BUILDKIT, ": E: Write error - write (28: No space left on device)", "free disk space; "),
        ("#5 ERROR: exit code: 1", "", "its last lines above name the step"),
        ("", "", "its last lines above name the step"),
    ],
)
def test_a_failed_build_ends_with_its_cause(output: str, cause: str, fix: str) -> None:
    first, second = str(run_bake.build_error(["efa-1"], output.splitlines())).split("\n")
    assert first == f"BuildKit could not build efa-1{cause}"
    assert second.startswith(fix)


PLAIN = """#1 [internal] load build definition from Dockerfile
#1 DONE 0.0s
#2 [efa-3f2a01 system-layer 1/2] FROM base
#2 CACHED
#3 [efa-3f2a01 system-layer 2/2] RUN apt-get install
#3 0.5 Reading package lists
"""


@pytest.mark.parametrize("code", [0, 1])
def test_what_buildkit_prints_into_a_pipe_is_shown_where_it_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    (tmp_path / "output").write_text(PLAIN)
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/output >&2\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    engine = Engine("x", "existing", "unix:///x", "26.1", "0.13", "containerd", "default")
    with pytest.raises(RdmaImagesError) if code else nullcontext():
        run_bake.BakeCommand(engine, run_bake.BuildOptions()).build_images({"target": {}}, ())
    assert capsys.readouterr().err == (PLAIN if code else "")


@pytest.mark.parametrize("output", [COLLECTED, CLOSED])
@pytest.mark.parametrize(("failures", "runs"), [(0, 1), (1, 2), (3, 4), (4, 4)])
def test_what_another_run_may_pass_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, failures: int, runs: int
) -> None:
    (tmp_path / "output").write_text(output)
    program = tmp_path / "docker"
    program.write_text(
        f"#!/bin/sh\necho >> {tmp_path}/runs\n[ $(wc -l < {tmp_path}/runs) -gt {failures} ] && exit\n"
        f"cat {tmp_path}/output >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    engine = Engine("x", "existing", "unix:///x", "26.1", "0.13", "containerd", "default")
    builds = run_bake.BakeCommand(engine, run_bake.BuildOptions())
    if failures < runs:
        builds.build_images({"target": {}}, ())
    else:
        with pytest.raises(RdmaImagesError, match="could not build"):
            builds.build_images({"target": {}}, ())
    assert (tmp_path / "runs").read_text() == "\n" * runs


def test_an_image_writes_its_own_cache_and_reads_the_caches_of_all(
    answering_engine: Callable[..., Engine], tmp_path: Path
) -> None:
    running = answering_engine()
    (tmp_path / "bin" / "docker").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/typed\n')
    images = [dataclasses.replace(planned_image(), id=name) for name in ("efa-1.0", "efa-2.0")]
    targets = [ImageTarget(image, Path("Dockerfile"), image.id, {}, {}, 0) for image in images]
    address = "type=registry,ref=host/cache:{image}"
    options = run_bake.BuildOptions(cache_from=(address, "type=local,src=/x"), cache_to=(address,))
    run_bake.BakeCommand(running, options).build_images({"target": {}}, targets)
    typed = (tmp_path / "typed").read_text().splitlines()
    assert [word for word in typed if word.startswith("--set")] == [
        "--set=*.cache-from=type=registry,ref=host/cache:efa-1.0",
        "--set=*.cache-from=type=registry,ref=host/cache:efa-2.0",
        "--set=*.cache-from=type=local,src=/x",
        f"--set={bake.bake_target_name('efa-1.0')}.cache-to=type=registry,ref=host/cache:efa-1.0",
        f"--set={bake.bake_target_name('efa-2.0')}.cache-to=type=registry,ref=host/cache:efa-2.0",
    ]


@pytest.mark.parametrize(
    ("network", "buildx", "builder", "granted"),
    [
        ("host", "0.29.1", None, ["--allow=network.host"]),
        ("host", "0.17.0", None, ["--allow=network.host"]),
        ("host", "0.13.1", None, []),
        ("default", "0.29.1", None, []),
        ("host", "0.29.1", "remote", []),
    ],
)
def test_bake_is_granted_the_hosts_network_where_it_asks(
    answering_engine: Callable[..., Engine],
    network: Literal["default", "host"],
    buildx: str,
    builder: str | None,
    granted: list[str],
) -> None:
    running = dataclasses.replace(answering_engine(), build_network=network, buildx=buildx)
    assert run_bake.network_entitlement(running, builder) == granted
