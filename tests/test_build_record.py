"""What build.json says of who built, and when an image is made again though its inputs are the same."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from rdma_images import build, labels, paths
from rdma_images.engine import Engine
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
