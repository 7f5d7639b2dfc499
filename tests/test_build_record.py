"""What build.json says of who built, and when an image is made again though its inputs are the same."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from rdma_images import build, labels, paths
from rdma_images.engine import Engine
from rdma_images.errors import RefusedError
from rdma_images.model import Build

# buildx 0.13 on a builder of two nodes, and buildx 0.12's word for the same.
INSPECTED = """Name:          team
Driver:        kubernetes

Nodes:
Name:             team0
BuildKit version: v0.13.2
Name:             team1
Buildkit:         v0.12.5
"""


@pytest.fixture
def engine(tmp_path):
    """An engine whose docker says what the test wants."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()

    def made(answer=""):
        (tmp_path / "answer").write_text(answer)
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
        program.chmod(0o755)
        return Engine(
            "x", "found", "unix:///x", "28.2", "0.24", "containerd", "default", {"PATH": f"{program.parent}:/bin"}
        )

    return made


def test_the_engines_own_buildkit_is_dockers(engine):
    assert build._programs(engine(), None) == {"buildx": "0.24", "docker": "28.2"}


@pytest.mark.parametrize(("said", "version"), [(INSPECTED, "v0.12.5 and v0.13.2"), ("", "unknown")])
def test_a_builder_of_its_own_tells_its_version_and_docker_built_nothing(said, version, engine):
    assert build._programs(engine(said), "team") == {"buildx": "0.24", "buildkit": version}


@pytest.mark.parametrize(
    ("then", "now", "again"),
    [
        ("a" * 40 + "-dirty", "b" * 40, True),
        ("a" * 40 + "-dirty", "b" * 40 + "-dirty", False),
        ("a" * 40, "b" * 40, False),
        ("", "b" * 40, False),  # written before it was written down
    ],
)
def test_what_was_not_committed_is_made_anew_when_it_is(then, now, again, engine, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(labels, "revision", lambda: labels.Revision(now, 0, None))
    made = Build("efa-1", "rdma-images/efa:1", "sha256:1", "sha256:2", (), "2026-11-21T08:00:00+00:00", 1.0, then)
    file = paths.image_folder("efa-1") / "build.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(asdict(made)))
    order = SimpleNamespace(image=SimpleNamespace(id="efa-1"), inputs="sha256:2")
    there = build._all_there([order], engine(f"{made.digest} {made.ref}\n"))
    assert there == ({} if again else {"efa-1": made})


def test_images_do_not_write_one_cache_over_another(engine):
    orders = [SimpleNamespace(image=SimpleNamespace(id=name)) for name in ("efa-1", "efa-2")]
    options = build.Options(cache_to=("type=registry,ref=host/cache:x",))
    with pytest.raises(RefusedError, match=r"2 images would overwrite it in turn: put \{image\} in it"):
        build.build(orders, None, engine(), options)


def test_an_image_writes_the_cache_of_its_name_and_reads_those_of_all(engine, tmp_path):
    running = engine()
    (tmp_path / "bin" / "docker").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/typed\n')
    targets = [SimpleNamespace(image=SimpleNamespace(id=name), ref=name) for name in ("efa-1.0", "efa-2.0")]
    address = "type=registry,ref=host/cache:{image}"
    options = build.Options(cache_from=(address, "type=local,src=/x"), cache_to=(address,))
    build._bake({"target": {}}, targets, {}, running, options)
    typed = (tmp_path / "typed").read_text().splitlines()
    assert [word for word in typed if word.startswith("--set")] == [
        "--set=*.cache-from=type=registry,ref=host/cache:efa-1.0",
        "--set=*.cache-from=type=registry,ref=host/cache:efa-2.0",
        "--set=*.cache-from=type=local,src=/x",
        "--set=efa-1_0.cache-to=type=registry,ref=host/cache:efa-1.0",
        "--set=efa-2_0.cache-to=type=registry,ref=host/cache:efa-2.0",
    ]
