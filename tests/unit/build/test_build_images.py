"""Which images are built again."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.build import build_images, build_record, run_bake
from rdma_images.build.build_spec import BuildSpec
from rdma_images.core import locking, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord
from rdma_images.engine import Engine
from rdma_images.engine.debian import bootstrap
from rdma_images.inputs import lock, project
from rdma_images.inputs.wheels import Lock
from rdma_images.render import labels
from tests.support.images import planned_image


def make_spec(image_id: str) -> BuildSpec:
    image = dataclasses.replace(planned_image(), id=image_id)
    return BuildSpec(image, Lock(request=lock.lock_request(image), wheels=()), facts.load(), "sha256:2")


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
    answering_engine: Callable[..., Engine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(labels, "project_revision", lambda: labels.Revision(now, 0, None))
    build = built(make_spec("efa-1"), then)
    current = build_record.up_to_date([make_spec("efa-1")], answering_engine(f"{build.digest} {build.ref}\n"))
    assert current == ({} if again else {"efa-1": build})


def built(spec: BuildSpec, revision: str) -> BuildRecord:
    """Return the record of a build, as that build leaves it."""
    build = BuildRecord(
        image_id=spec.image.id,
        ref="rdma-images/efa:1",
        digest="sha256:1",
        inputs=spec.inputs,
        stand_ins=(),
        finished="2026-11-21T08:00:00+00:00",
        seconds=1.0,
        revision=revision,
    )
    file = paths.image_folder(spec.image.id) / "build.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(asdict(build)))
    return build


def test_the_first_build_of_a_machine_which_makes_the_base_is_up_to_date_after_it(
    answering_engine: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(labels, "project_revision", lambda: labels.Revision("", 0, None))
    first = dataclasses.replace(make_spec("efa-1"), bases=frozenset({("debian13", "linux/amd64")}))
    base = bootstrap.BootstrapRecord("debian13", "trixie", "", "", "", "debian13-1.tar")
    monkeypatch.setattr(bootstrap, "last_bootstrapped", lambda *_: base)
    build = built(first, "")
    assert build_record.up_to_date([first], answering_engine(f"{build.digest} {build.ref}\n")) == {"efa-1": build}
    monkeypatch.setattr(bootstrap, "last_bootstrapped", lambda *_: dataclasses.replace(base, tar="debian13-2.tar"))
    assert not build_record.up_to_date([first], answering_engine(f"{build.digest} {build.ref}\n"))


def test_a_source_that_does_not_answer_is_refused_before_the_lock_is_waited_for(
    answering_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("1 of 2 sources are unreachable")

    monkeypatch.setattr(build_images, "require_sources", refuse)
    monkeypatch.setattr(locking, "hold", lambda *_: pytest.fail("the lock was waited for"))
    with pytest.raises(RefusedError, match="unreachable"):
        build_images.build_specs([make_spec("efa-1")], project.load(), answering_engine(), run_bake.BuildOptions())
