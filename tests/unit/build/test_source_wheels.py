"""Wheels from source that are kept: compiled once for equal inputs, and again for others."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.build import source_wheels
from rdma_images.build.build_spec import BuildSpec
from rdma_images.core.errors import RdmaImagesError
from rdma_images.publish.destination import layers_repository
from rdma_images.registry import registry_errors
from rdma_images.registry.client import OCI_MANIFEST, Manifest, Repository, canonical
from tests.support.publish_doubles import Store, served
from tests.support.source_packages import make_spec, planned_image

pytestmark = pytest.mark.usefixtures("folders")
WHEEL = "some_extension-1.0-cp313-cp313-linux_x86_64.whl"
TAG = "wheel-0123456789"


class Compiler:
    """Stands for BuildKit: notes which stages it was asked for, and leaves a wheel."""

    def __init__(self, file: str = WHEEL) -> None:
        self.file = file
        self.stages: list[str] = []

    def __call__(self, _image_id: str, stage: str, folder: Path) -> None:
        self.stages.append(stage)
        if self.file:
            (folder / self.file).write_bytes(b"x" * 1000)


def provided(compiler: Compiler, spec: BuildSpec, rehearsed: tuple[str, ...] = ()) -> dict[str, str]:
    return source_wheels.provide_source_wheels([spec], {spec.image.id: rehearsed}, compiler)[spec.image.id]


def test_a_package_is_compiled_once_and_handed_over_as_its_stage() -> None:
    compiler = Compiler()
    assert not source_wheels.are_kept(make_spec(), ())
    first, second = provided(compiler, make_spec()), provided(compiler, make_spec())
    assert source_wheels.are_kept(make_spec(), ())
    assert first == second
    assert list(first) == compiler.stages == ["source-some-extension"]
    assert [file.name for file in Path(first["source-some-extension"]).iterdir()] == [WHEEL]


def test_other_architectures_platforms_and_stand_ins_are_compiled_for() -> None:
    compiler = Compiler()
    provided(compiler, make_spec())
    provided(compiler, make_spec(replace(planned_image("some-extension"), source_architectures=("sm_90",))))
    provided(compiler, make_spec(replace(planned_image("some-extension"), platform="linux/arm64")))
    provided(compiler, make_spec(), ("efa-installer-1.50.0",))
    assert len(compiler.stages) == 4


def test_a_build_without_a_wheel_is_an_error_and_nothing_of_it_is_kept() -> None:
    with pytest.raises(RdmaImagesError, match=r"some-extension 1.0: its build ended without a wheel\n"):
        provided(Compiler(""), make_spec())
    assert list(source_wheels.root().iterdir()) == []


def test_what_a_killed_build_left_is_not_taken() -> None:
    spec = make_spec()
    (source,) = (wheel for wheel in spec.lock.wheels if wheel.is_source)
    unfinished = source_wheels.root() / f".{source_wheels.wheel_key(spec, source, ())}"
    unfinished.mkdir(parents=True)
    (unfinished / WHEEL).write_bytes(b"half")
    compiler = Compiler()
    folder = Path(provided(compiler, spec)["source-some-extension"])
    assert compiler.stages
    assert (folder / WHEEL).stat().st_size == 1000
    assert not unfinished.exists()


def test_the_least_recently_used_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler()
    folders = []
    for number, rehearsed in enumerate([("a",), ("b",), ("c",)]):
        folders.append(Path(provided(compiler, make_spec(), rehearsed)["source-some-extension"]))
        os.utime(folders[-1], (number, number))
    monkeypatch.setattr(source_wheels, "MAX_BYTES", 2000)
    provided(compiler, make_spec(), ("a",))  # used again
    assert [folder.exists() for folder in folders] == [True, False, True]


def test_no_wheel_goes_that_this_build_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_wheels, "MAX_BYTES", 1500)
    other = replace(planned_image("some-extension"), id="other", source_architectures=("sm_90",))
    specs = [make_spec(), make_spec(other)]
    contexts = source_wheels.provide_source_wheels(specs, {spec.image.id: () for spec in specs}, Compiler())
    assert [list(Path(folder).iterdir()) != [] for by_stage in contexts.values() for folder in by_stage.values()]


def test_wheels_of_equal_name_and_size_have_different_times() -> None:
    """BuildKit takes a file of equal name, size and time for the one that it got before."""

    class Dated(Compiler):
        def __call__(self, image_id: str, stage: str, folder: Path) -> None:
            super().__call__(image_id, stage, folder)
            os.utime(folder / WHEEL, (0, 0))

    specs = [replace(make_spec(), packages={"some-extension": digest}) for digest in ("sha256:1", "sha256:2")]
    wheels = [Path(provided(Dated(), spec)["source-some-extension"]) / WHEEL for spec in specs]
    assert len({wheel.stat().st_mtime for wheel in wheels}) == 2


@pytest.fixture
def repository() -> Iterator[Repository]:
    with served(Store().handler()) as host:
        yield layers_repository(f"{host}/team/layers")


def test_one_machine_compiles_and_the_other_takes_its_wheel(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, compiler, lines = make_spec(), Compiler(), list[str]()
    for machine in ("first", "second"):
        monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / machine))
        (contexts,) = source_wheels.provide_source_wheels(
            [spec], {spec.image.id: ()}, compiler, lines.append, repository
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
    assert not source_wheels.fetch(TAG, repository, tmp_path)
    source_wheels.send(TAG, repository, tmp_path)
    body = repository.manifest(TAG).body
    lines: list[str] = []
    for name in ("../x-1-py3-none-any.whl", "x-1-py3-none-a/b.whl", "x.txt", ""):
        body["layers"][0]["annotations"] = {"org.opencontainers.image.title": name}
        repository.put_manifest(TAG, Manifest(OCI_MANIFEST, canonical(body)))
        assert not source_wheels.fetch(TAG, repository, tmp_path, lines.append)
        assert lines.pop().endswith("; the wheel is compiled here")
    assert sorted(path.name for path in tmp_path.iterdir()) == [WHEEL]


def test_a_wheel_that_arrives_damaged_is_compiled(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_: Repository, digest: str, file: Path) -> None:
        file.with_name("x-1-py3-none-any.whl").write_bytes(b"half")
        raise registry_errors.ConflictError(f"the registry sent other bytes than {digest}\nask for it again")

    spec, compiler = make_spec(), Compiler()
    for machine in ("first", "second"):
        monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / machine))
        (contexts,) = source_wheels.provide_source_wheels(
            [spec], {spec.image.id: ()}, compiler, repository=repository
        ).values()
        monkeypatch.setattr(Repository, "save_blob", damaged)
    assert compiler.stages == ["source-some-extension"] * 2
    assert [file.name for file in Path(contexts["source-some-extension"]).iterdir()] == [WHEEL]


def test_a_registry_that_takes_nothing_ends_no_build(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise registry_errors.DeniedError("no right to write\nask for it")

    monkeypatch.setattr(Repository, "put_manifest", denied)
    spec, lines = make_spec(), list[str]()
    source_wheels.provide_source_wheels([spec], {spec.image.id: ()}, Compiler(), lines.append, repository)
    assert lines[-1] == "no right to write; other machines compile this wheel themselves"
