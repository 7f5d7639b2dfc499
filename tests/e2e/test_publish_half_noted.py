"""A registry that died while it wrote: what it recorded in part is repaired or reported."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.engine.docker_command import Engine
from rdma_images.publish import engine_blobs
from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.publish.attach import fallback_tag
from tests.e2e.publish_parts import Registry, placed
from tests.e2e.test_publish_faults import (  # the fixtures are found by their names here
    REPOSITORY,
    Trap,
    assert_complete_and_single,
    engine,
    item,
    never,
    program,
    run,
    small,
)

__all__ = ["engine", "item", "program", "small"]
pytestmark = pytest.mark.e2e


def stored_files(registry: Registry) -> list[Path]:
    """Return what the registry stores, in the order in which it was written."""
    return sorted(
        (path for path in registry.storage.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns
    )


def half_note(registry: Registry, path: Path) -> None:
    """Leave the file `path` as a kill does: begun, and nothing after it."""
    files = stored_files(registry)
    for later in files[files.index(path) + 1 :]:
        later.unlink()
    for folder in sorted((directory for directory in registry.storage.rglob("*") if directory.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    path.write_bytes(b"")


@pytest.fixture
def published(engine: Engine, item: ApprovedImage, program: Path, tmp_path: Path) -> Iterator[Registry]:
    registry = Registry(program, tmp_path / "registry").start()
    try:
        assert run(engine, item, registry, Trap(1 << 40, never)).error == ""
        registry.kill()
        yield registry
    finally:
        registry.kill()


def publication_note(registry: Registry, item: ApprovedImage, name: str, turn: int = 0) -> Path:
    """Return the note of the repository that matches `name` and was written at that turn."""
    tags = {"full": item.tags.full, "short": item.tags.short[0], "list": fallback_tag(item.build.digest)}
    return [path for path in stored_files(registry) if path.match(f"{REPOSITORY}/{name.format(**tags)}/link")][turn]


def first_layer(engine: Engine, registry: Registry, item: ApprovedImage) -> Path:
    """Return the note of the first layer; the configuration's may come before or after it."""
    layers = {layer["digest"] for layer in json.loads(engine_blobs.manifest(engine, item.build.digest).raw)["layers"]}
    notes = [path for path in stored_files(registry) if path.match(f"{REPOSITORY}/_layers/sha256/*/link")]
    return next(note for note in notes if f"sha256:{note.parent.name}" in layers)


@pytest.mark.parametrize(
    ("name", "turn"),
    [
        ("_layers/sha256/*", 0),
        ("_layers/sha256/*", -1),
        ("_manifests/tags/{full}/current", 0),
        ("_manifests/tags/{short}/current", 0),
        ("_manifests/tags/{list}/current", 0),
    ],
)
def test_what_is_half_noted_is_sent_again(
    name: str, turn: int, engine: Engine, item: ApprovedImage, published: Registry
) -> None:
    half_note(published, publication_note(published, item, name, turn))
    published.start()
    outcome = run(engine, item, published, Trap(1 << 40, never))
    assert outcome.error == "", outcome.error
    assert_complete_and_single(published, item)


def test_what_was_sent_again_is_reported_and_counted(engine: Engine, item: ApprovedImage, published: Registry) -> None:
    note = first_layer(engine, published, item)
    half_note(published, note)
    published.start()
    trap = Trap(1 << 40, never)
    outcome = run(engine, item, published, trap)
    assert any(f"sending blobs/sha256:{note.parent.name} again" in line for line in trap.lines), trap.lines
    assert placed(outcome).traffic.pushed == placed(outcome).bytes


@pytest.mark.exhaustive
def test_whichever_note_is_half_written(engine: Engine, item: ApprovedImage, published: Registry) -> None:
    backup = published.folder / "whole"
    shutil.copytree(published.storage, backup)
    notes = [path for path in stored_files(published) if path.name == "link"]
    assert len(notes) > 20
    for note in notes:
        shutil.rmtree(published.storage)
        shutil.copytree(backup, published.storage)
        half_note(published, note)
        published.start()
        outcome = run(engine, item, published, Trap(1 << 40, never))
        assert outcome.error == "", f"{note}: {outcome.error}"
        assert_complete_and_single(published, item)
        published.kill()


def test_a_layer_that_the_registry_lost_the_bytes_of_is_reported(
    engine: Engine, item: ApprovedImage, published: Registry
) -> None:
    """As after a power failure; docker skips the layer, for the registry claims to have it."""
    shutil.rmtree(published.storage / "docker/registry/v2/repositories" / REPOSITORY / "_manifests")
    largest = max(stored_files(published), key=lambda path: path.stat().st_size)
    largest.write_bytes(b"")
    published.start()
    outcome = run(engine, item, published, Trap(1 << 40, never))
    assert f"sha256:{largest.parent.name}" in outcome.error
    assert "damaged" in outcome.error
    assert published.tags(REPOSITORY) == {item.tags.full}
