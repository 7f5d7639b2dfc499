"""BuildKit's own record of a build, read from its history."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.build import execute
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image_build import Provenance
from rdma_images.engine import history
from rdma_images.engine.docker_command import Engine
from tests.e2e.publish_parts import Small, build_small, green, planned, write_steps

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engines.ensure(print)


@pytest.fixture(scope="module")
def small(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Small, bytes]]:
    folder = tmp_path_factory.mktemp("context")
    built = build_small(engine, folder, "history", layers=2)
    yield built, (folder / "Dockerfile").read_bytes()
    engines.client(engine).images.remove(built.ref, force=True)


def test_the_record_is_of_the_build_that_made_the_image(engine: Engine, small: tuple[Small, bytes]) -> None:
    built, dockerfile = small
    unbuilt = "sha256:" + "0" * 64
    records = history.provenances(engine, {built.digest, unbuilt})
    assert set(records) == {built.digest}
    record = records[built.digest]
    assert record.predicate_type.startswith("https://slsa.dev/provenance/")
    predicate = json.dumps(record.predicate)
    assert base64.b64encode(dockerfile).decode() in predicate, "the Dockerfile is in the record"
    assert '"/layer1"' in predicate, "and so is every step"


def test_it_tells_what_a_cache_answered(engine: Engine, tmp_path: Path) -> None:
    def built() -> tuple[Small, Provenance]:
        build = build_small(engine, tmp_path, "history-cached", layers=2)
        (record,) = history.provenances(engine, {build.digest}).values()
        return build, record

    _, once = built()
    rebuilt, again = built()
    assert (once.steps > 2, once.cached) == (True, 0)
    assert (again.steps, again.cached) == (once.steps, 2), "the two layers"
    engines.client(engine).images.remove(rebuilt.ref, force=True)


def test_a_builder_that_is_not_there_is_told(engine: Engine, small: tuple[Small, bytes]) -> None:
    with pytest.raises(RdmaImagesError, match=r"history cannot be read: .*nosuch"):
        history.provenances(engine, {small[0].digest}, "nosuch")


def test_a_build_goes_on_without_it(
    engine: Engine, small: tuple[Small, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path)
    image = planned()
    built, report = green(image, small[0])
    write_steps(image, built, report)
    record_file = paths.image_folder(image.id) / "buildkit.json"
    execute.save_history([built], engine, None)
    assert json.loads(record_file.read_text())["digest"] == built.digest
    lines: list[str] = []
    execute.save_history([built], engine, "nosuch", lines.append)
    assert not record_file.exists(), "it would be another build's"
    assert len(lines) == 1
    assert "nosuch" in lines[0]
