"""build.json: the programs that built, and when an image with unchanged inputs is built again."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Literal

import pytest

from rdma_images import facts
from rdma_images.build import build_images, execute, run_bake
from rdma_images.build.build_spec import BuildSpec
from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Build
from rdma_images.debian import bootstrap
from rdma_images.engine import Engine, docker_command
from rdma_images.inputs import lock
from rdma_images.inputs.wheels import Lock
from rdma_images.render import bake, labels
from rdma_images.render.bake import ImageTarget
from rdma_images.selection import project
from tests.support.images import planned

# buildx 0.13 on a builder of two nodes, and the spelling of buildx 0.12.
INSPECTED = """Name:          team
Driver:        kubernetes

Nodes:
Name:             team0
BuildKit version: v0.13.2
Name:             team1
Buildkit:         v0.12.5
"""


THIS = {"rdma-images": metadata.version("rdma-images")}


@pytest.fixture
def engine(tmp_path: Path) -> Callable[..., docker_command.Engine]:
    """Return a function that makes an engine whose docker command prints the given answer."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()

    def engine_that_answers(answer: str = "") -> docker_command.Engine:
        (tmp_path / "answer").write_text(answer)
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
        program.chmod(0o755)
        return Engine(
            "x", "existing", "unix:///x", "28.2", "0.24", "containerd", "default", {"PATH": f"{program.parent}:/bin"}
        )

    return engine_that_answers


def order(image_id: str) -> BuildSpec:
    image = dataclasses.replace(planned(), id=image_id)
    return BuildSpec(image, Lock(request=lock.lock_request(image), wheels=()), facts.load(), "sha256:2")


def test_the_engines_own_buildkit_is_dockers(engine: Callable[..., docker_command.Engine]) -> None:
    assert execute.builder_versions(engine(), None) == {**THIS, "buildx": "0.24", "docker": "28.2"}


@pytest.mark.parametrize(("answer", "version"), [(INSPECTED, "v0.12.5 and v0.13.2"), ("", "unknown")])
def test_a_named_builder_has_a_buildkit_version_and_no_docker_version(
    answer: str, version: str, engine: Callable[..., docker_command.Engine]
) -> None:
    assert execute.builder_versions(engine(answer), "team") == {**THIS, "buildx": "0.24", "buildkit": version}


@pytest.mark.parametrize(
    ("then", "now", "again"),
    [
        ("a" * 40 + "-dirty", "b" * 40, True),
        ("a" * 40 + "-dirty", "b" * 40 + "-dirty", False),
        ("a" * 40, "b" * 40, False),
        ("", "b" * 40, False),  # build.json of a version that recorded no revision
    ],
)
def test_an_image_of_uncommitted_files_is_built_again_after_the_commit(
    then: str,
    now: str,
    again: bool,
    engine: Callable[..., docker_command.Engine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(labels, "project_revision", lambda: labels.Revision(now, 0, None))
    build = built(order("efa-1"), then)
    current = build_images.up_to_date_builds([order("efa-1")], engine(f"{build.digest} {build.ref}\n"))
    assert current == ({} if again else {"efa-1": build})


def built(spec: BuildSpec, revision: str) -> Build:
    """Return the record of a build, as that build leaves it."""
    build = Build(
        image_id=spec.image.id,
        ref="rdma-images/efa:1",
        digest="sha256:1",
        inputs=spec.inputs,
        rehearsal=(),
        finished="2026-11-21T08:00:00+00:00",
        seconds=1.0,
        revision=revision,
    )
    file = paths.image_folder(spec.image.id) / "build.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(asdict(build)))
    return build


def test_the_first_build_of_a_machine_which_makes_the_base_is_up_to_date_after_it(
    engine: Callable[..., docker_command.Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(labels, "project_revision", lambda: labels.Revision("", 0, None))
    first = dataclasses.replace(order("efa-1"), bases=frozenset({("debian13", "linux/amd64")}))
    base = bootstrap.BootstrapRecord("debian13", "trixie", "", "", "", "debian13-1.tar")
    monkeypatch.setattr(bootstrap, "last_bootstrapped", lambda *_: base)
    build = built(first, "")
    assert build_images.up_to_date_builds([first], engine(f"{build.digest} {build.ref}\n")) == {"efa-1": build}
    monkeypatch.setattr(bootstrap, "last_bootstrapped", lambda *_: dataclasses.replace(base, tar="debian13-2.tar"))
    assert not build_images.up_to_date_builds([first], engine(f"{build.digest} {build.ref}\n"))


def test_two_images_cannot_share_one_cache_address(engine: Callable[..., docker_command.Engine]) -> None:
    options = run_bake.Options(cache_to=("type=registry,ref=host/cache:x",))
    with pytest.raises(RefusedError, match=r"2 images would overwrite .*\nput \{image\} into the address"):
        build_images.build([order("efa-1"), order("efa-2")], project.load(), engine(), options)


def test_an_image_writes_its_own_cache_and_reads_the_caches_of_all(
    engine: Callable[..., docker_command.Engine], tmp_path: Path
) -> None:
    running = engine()
    (tmp_path / "bin" / "docker").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/typed\n')
    images = [dataclasses.replace(planned(), id=name) for name in ("efa-1.0", "efa-2.0")]
    targets = [ImageTarget(image, Path("Dockerfile"), image.id, {}, {}, 0) for image in images]
    address = "type=registry,ref=host/cache:{image}"
    options = run_bake.Options(cache_from=(address, "type=local,src=/x"), cache_to=(address,))
    run_bake.BakeCommand(running, options).build_images({"target": {}}, targets)
    typed = (tmp_path / "typed").read_text().splitlines()
    assert [word for word in typed if word.startswith("--set")] == [
        "--set=*.cache-from=type=registry,ref=host/cache:efa-1.0",
        "--set=*.cache-from=type=registry,ref=host/cache:efa-2.0",
        "--set=*.cache-from=type=local,src=/x",
        f"--set={bake.image_name('efa-1.0')}.cache-to=type=registry,ref=host/cache:efa-1.0",
        f"--set={bake.image_name('efa-2.0')}.cache-to=type=registry,ref=host/cache:efa-2.0",
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
    engine: Callable[..., docker_command.Engine],
    network: Literal["default", "host"],
    buildx: str,
    builder: str | None,
    granted: list[str],
) -> None:
    running = dataclasses.replace(engine(), build_network=network, buildx=buildx)
    assert run_bake.network_entitlement(running, builder) == granted
