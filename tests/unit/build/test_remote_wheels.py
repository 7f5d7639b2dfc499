"""Compiled wheels in a registry: what one machine compiled, another one takes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.build import source_wheels
from rdma_images.core import paths
from rdma_images.publish.destination import layers_repository
from rdma_images.registry import faults
from rdma_images.registry.client import OCI_MANIFEST, Manifest, Repository, canonical
from tests.support.publish_doubles import Store, served
from tests.unit.build.test_source_wheels import WHEEL, Compiler, spec

KEY = "0123456789abcdef" * 4


@pytest.fixture
def repository() -> Iterator[Repository]:
    with served(Store().handler()) as host:
        yield layers_repository(f"{host}/team/layers")


def test_one_machine_compiles_and_the_other_takes_its_wheel(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    order, compiler, lines = spec(), Compiler(), list[str]()
    for machine in ("first", "second"):
        monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / machine))
        (contexts,) = source_wheels.provide_contexts(
            [order], {order.image.id: ()}, compiler, lines.append, repository
        ).values()
        assert (Path(contexts["source-some-extension"]) / WHEEL).read_bytes() == b"x" * 1000
    assert compiler.stages == ["source-some-extension"]
    assert lines == [
        "compiling some-extension 1.0",
        f"{WHEEL}: sent to {repository.ref}",
        f"{WHEEL}: compiled before, 0 MB taken from {repository.ref}",
    ]


def test_what_is_no_wheel_is_not_taken(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"x")
    assert not source_wheels.fetch_from_registry(KEY, repository, tmp_path)
    source_wheels.send_to_registry(KEY, repository, tmp_path)
    tag = f"wheel-{KEY[:40]}"
    body = repository.manifest(tag).body
    for name in ("../x-1-py3-none-any.whl", "x.txt", ""):
        body["layers"][0]["annotations"] = {"org.opencontainers.image.title": name}
        repository.put_manifest(tag, Manifest(OCI_MANIFEST, canonical(body)))
        with pytest.raises(faults.MalformedError, match="is no wheel\ndelete the tag there"):
            source_wheels.fetch_from_registry(KEY, repository, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [WHEEL]


def test_a_registry_that_takes_nothing_ends_no_build(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise faults.DeniedError("no right to write\nask for it")

    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(Repository, "put_manifest", denied)
    order, lines = spec(), list[str]()
    source_wheels.provide_contexts([order], {order.image.id: ()}, Compiler(), lines.append, repository)
    assert lines[-1] == "no right to write; other machines compile this wheel themselves"
