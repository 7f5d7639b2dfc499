"""A lock answers one request, names no place, and is refused when it does not fit."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.components.nccl import NcclDetails
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Component, Image, SourceBuild
from rdma_images.inputs import lock, project
from rdma_images.inputs.resolve import accepted_tags
from rdma_images.inputs.wheels import Lock, LockRequest, Wheel, total_size
from rdma_images.plan import planner
from rdma_images.plan.refusals import Plan
from tests.support.existing_images import existing, planned_onto
from tests.support.images import planned_image

NCCL = NcclDetails("nvidia-nccl-cu13")
DIGEST = "0" * 64
COMMITTED = sorted((paths.LOCKS / "python").glob("*.json"))


def make_wheel(name: str, version: str) -> Wheel:
    file = f"{name.replace('-', '_')}-{version}-py3-none-manylinux_2_18_x86_64.whl"
    return Wheel(name=name, version=version, file=file, sha256=DIGEST, size=7)


def write_lock(folder: Path, request: LockRequest, *wheels: Wheel) -> Path:
    file = lock.lock_path(request, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(Lock(request=request, wheels=wheels).text())
    return file


def locked(folder: Path, locked_image: Image | None = None, nccl: str = "2.30.7") -> Path:
    request = lock.lock_request(locked_image or planned_image())
    return write_lock(folder, request, make_wheel("nvidia-nccl-cu13", nccl), make_wheel("torch", "2.15.0"))


@pytest.mark.parametrize(
    ("components", "requirements", "overrides", "key"),
    [
        ({}, ("torch==2.15.0",), (), "torch-2.15.0-py3.13-linux-amd64"),
        (
            {"nccl": Component("nccl", "2.32.3", "--set", NCCL)},
            ("torch==2.15.0",),
            ("nvidia-nccl-cu13==2.32.3",),
            "torch-2.15.0-nccl-2.32.3-py3.13-linux-amd64",
        ),
        (
            {"pytorch": None, "nccl": Component("nccl", "2.30.7", "matrix", NCCL)},
            ("nvidia-nccl-cu13==2.30.7",),
            (),
            "nccl-2.30.7-py3.13-linux-amd64",
        ),
    ],
    ids=["torch decides its NCCL", "a chosen NCCL is stronger than torch's pin", "NCCL without torch"],
)
def test_what_an_image_asks_for(
    components: dict[str, Component | None], requirements: tuple[str, ...], overrides: tuple[str, ...], key: str
) -> None:
    request = lock.lock_request(planned_image(components=components))
    assert (request.requirements, request.overrides, request.key) == (requirements, overrides, key)


@pytest.mark.parametrize(
    ("packages", "key"),
    [
        (("numpy",), "torch-2.15.0+numpy-py3.13-linux-amd64"),
        (("numpy", "boto3"), "torch-2.15.0+boto3+numpy-py3.13-linux-amd64"),
        (("numpy>=2",), r"torch-2.15.0+[0-9a-f]{8}-py3.13-linux-amd64"),
    ],
)
def test_the_name_of_a_lock_says_what_was_asked(packages: tuple[str, ...], key: str) -> None:
    name = lock.lock_request(planned_image(python_packages=packages)).key
    assert re.fullmatch(key.replace("+", r"\+"), name)


def test_different_questions_have_different_names() -> None:
    several = [
        planned_image(),
        planned_image(platform="linux/arm64"),
        planned_image(components={"python": Component("python", "3.12", "base")}),
        planned_image(components={"pytorch": Component("pytorch", "2.14.1", "matrix")}),
        planned_image(components={"nccl": Component("nccl", "2.32.3", "--set", NCCL)}),
        planned_image(python_packages=("numpy",)),
        planned_image(python_packages=("numpy>=2",)),
        planned_image(python_packages=("numpy<2",)),
    ]
    assert len({lock.lock_request(pinned).key for pinned in several}) == len(several)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = locked(tmp_path)
    loaded = lock.read_image_lock(planned_image(), tmp_path)
    assert loaded.text() == file.read_text()
    assert [wheel.requirement for wheel in loaded.wheels] == [
        f"nvidia-nccl-cu13==2.30.7 --hash=sha256:{DIGEST}",
        f"torch==2.15.0 --hash=sha256:{DIGEST}",
    ]
    assert total_size(loaded.wheels) == 14


def test_an_image_without_wheels_needs_no_lock(tmp_path: Path) -> None:
    assert lock.read_image_lock(planned_image(components={"pytorch": None, "nccl": None}), tmp_path).wheels == ()


def test_a_missing_lock_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(lock.NotLockedError, match=r"no such lock\nrun `invoke lock`"):
        lock.read_image_lock(planned_image(), tmp_path)


def test_a_lock_of_another_question_is_refused(tmp_path: Path) -> None:
    other = lock.lock_request(planned_image(python_packages=("numpy",)))
    write_lock(tmp_path, other, make_wheel("torch", "2.15.0")).rename(
        lock.lock_path(lock.lock_request(planned_image()), tmp_path)
    )
    with pytest.raises(
        RefusedError, match=r"locked for other packages or another base than torch==2\.15\.0\nrun `invoke"
    ):
        lock.read_image_lock(planned_image(), tmp_path)


def test_a_lock_that_lost_a_package_is_refused(tmp_path: Path) -> None:
    write_lock(tmp_path, lock.lock_request(planned_image()), make_wheel("nvidia-nccl-cu13", "2.30.7"))
    with pytest.raises(RefusedError, match=r"has no wheel of torch\nrun `invoke lock`"):
        lock.read_image_lock(planned_image(), tmp_path)


def test_wheels_with_another_nccl_than_planned_are_refused(tmp_path: Path) -> None:
    locked(tmp_path, nccl="2.29.7")
    with pytest.raises(RdmaImagesError, match=r"bring nvidia-nccl-cu13 2\.29\.7, but .* nvidia-nccl-cu13 2\.30\.7"):
        lock.read_image_lock(planned_image(), tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace('"wheels"', '"weels"'), r":\d+: unknown key 'weels'"),
        (lambda text: text.replace('"size": 7', '"size": "many"'), r":\d+: wheels.*size"),
        (lambda text: text[:-20], r":\d+: not valid YAML"),
    ],
)
def test_a_damaged_lock_is_named_with_its_line(tmp_path: Path, damage: Callable[[str], str], message: str) -> None:
    file = locked(tmp_path)
    file.write_text(damage(file.read_text()))
    with pytest.raises(RefusedError, match=re.escape(str(file)) + message):
        lock.read_image_lock(planned_image(), tmp_path)


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.stem)
def test_committed_locks(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"(?<!git\+https)://", text)
    assert not re.search(r"20\d\d-\d\d-\d\d", text)
    new_lock = Lock.model_validate_json(text)
    assert new_lock.text() == text
    accepted = set(accepted_tags(new_lock.request))
    for wheel in new_lock.wheels:
        assert wheel.tags & accepted if not wheel.is_source else wheel.name in new_lock.request.sources, wheel.file
        assert wheel.size > 0 or re.fullmatch(r"git\+https://\S+@[0-9a-f]{40}", wheel.origin)
        assert wheel.origin or re.fullmatch(r"[0-9a-f]{64}", wheel.sha256)
    names = [locked_wheel.name for locked_wheel in new_lock.wheels]
    assert names == sorted(set(names))
    versions = {locked_wheel.name: locked_wheel.version for locked_wheel in new_lock.wheels}
    assert versions.get("cuda-python") in (None, versions.get("cuda-bindings"))  # an older one brings the same files
    if not file.stem.startswith("tools-"):
        assert file.stem == new_lock.request.key
        assert lock.read_lock(new_lock.request) == new_lock


def test_the_builder_has_its_tools_on_every_platform() -> None:
    tools = lock.tools()
    files = [wheel for platform in ("linux/amd64", "linux/arm64") for wheel in lock.read_tools(platform).wheels]
    assert {"uv", *lock.BUILD_TOOLS} <= set(tools)
    uv = [file for file in files if file.name == "uv"]
    assert tools["uv"].hashes == tuple(pinned.sha256 for pinned in uv)
    assert tools["uv"].requirement.startswith(f"uv=={uv[0].version} --hash=sha256:{uv[0].sha256} --hash=")


def test_tools_that_were_locked_before_the_build_tools_are_locked_again(tmp_path: Path) -> None:
    request = LockRequest(requirements=("uv==1.0",), python="3.10", platform="linux/amd64")
    file = lock.tools_path("linux/amd64", tmp_path)
    file.parent.mkdir()
    file.write_text(Lock(request=request, wheels=(make_wheel("uv", "1.0"),)).text())
    with pytest.raises(lock.NotLockedError, match=r"has no cmake, .*, wheel\nrun `invoke lock`"):
        lock.tools(tmp_path)


def test_a_source_package_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    used, unused = (replace(planned_image(), source_packages=(name,)) for name in ("torch", "inotify-simple"))
    locked(tmp_path, used)
    assert lock.read_image_lock(used, tmp_path)
    with pytest.raises(lock.NotLockedError):
        lock.read_image_lock(unused, tmp_path)
    locked(tmp_path, unused)
    message = r"source-packages names inotify-simple, which none of its packages needs\nremove it there"
    with pytest.raises(RefusedError, match=message):
        lock.read_image_lock(unused, tmp_path)


def test_a_lock_of_packages_that_no_target_asks_for_any_more_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "LOCKS", tmp_path)
    before, now, other = (planned_image(python_packages=packages) for packages in (("a",), ("a", "b"), ("c",)))
    file_before, file_now, file_other = (locked(tmp_path, image) for image in (before, now, other))
    said: list[str] = []
    monkeypatch.setattr(planner, "plan", lambda *_, **__: Plan((now, other)))
    lock.remove_superseded([now], project.load(), said.append)
    assert said == [f"removed {file_before}: no target of matrix.yaml asks for its packages any more"]
    assert sorted((tmp_path / "python").iterdir()) == sorted([file_now, file_other])
    locked(tmp_path, before)
    with_another_torch = planned_image(
        components={"pytorch": Component("pytorch", "2.14.1", "--set")}, python_packages=("a",)
    )
    monkeypatch.setattr(planner, "plan", lambda *_, **__: Plan((now, with_another_torch)))
    lock.remove_superseded([now], project.load(), said.append)
    assert sorted((tmp_path / "python").iterdir()) == sorted([file_before, file_now])


class TestPackageOptions:
    """Packages that are built or installed in a way of their own."""

    def test_they_are_part_of_the_request(self) -> None:
        image = replace(planned_image(python_packages=("nixl",)), no_deps={"nixl": "it brings cu12 beside cu13"})
        assert lock.lock_request(image).no_deps == ("nixl",)
        assert lock.lock_request(image).key != lock.lock_request(planned_image(python_packages=("nixl",))).key

    def test_a_package_that_none_needs(self, tmp_path: Path) -> None:
        image = replace(planned_image(), no_deps={"nixl": "alone"})
        locked(tmp_path, image)
        with pytest.raises(RefusedError, match="package-options names nixl, which none of its packages needs"):
            lock.read_image_lock(image, tmp_path)

    def test_a_wheel_is_not_built(self, tmp_path: Path) -> None:
        builds = {"torch": SourceBuild({"A": "1"}, is_own=True)}
        locked(tmp_path)
        with pytest.raises(RefusedError, match="env or a patch for torch, which comes as a wheel"):
            lock.read_image_lock(replace(planned_image(), source_builds=builds), tmp_path)


class TestOntoAnImage:
    """An image's own packages are in no lock; those that the target names beside them are."""

    @pytest.mark.parametrize(
        ("packages", "installed"),
        [
            (("einops", "numpy"), ("numpy==2.3.0", "nvidia-nccl-cu13==2.30.7", "torch==2.15.0+cu132")),
            (("einops", "numpy>=2.4"), ("nvidia-nccl-cu13==2.30.7", "torch==2.15.0+cu132")),
            (("NumPy", "numpy<2.3"), ("nvidia-nccl-cu13==2.30.7", "torch==2.15.0+cu132")),
        ],
    )
    def test_what_stays(self, packages: tuple[str, ...], installed: tuple[str, ...]) -> None:
        request = lock.lock_request(replace(planned_onto(), python_packages=packages))
        assert (request.requirements, request.installed, request.python) == (packages, installed, "3.12")

    def test_packages_that_stay_keep_what_they_require(self) -> None:
        requires = {"torch": ("numpy<3,>=2", "nvidia-nccl-cu13==2.30.7"), "numpy": ()}
        image = planned_onto(existing(python_requires=requires), nccl="2.31.2")
        beside = replace(image, python_packages=("numpy>=2.4",))
        assert lock.lock_request(beside).constraints == ("numpy<3,>=2",)
        assert lock.lock_request(replace(image, python_packages=("numpy",))).constraints == ()

    def test_without_packages_nothing_is_locked(self) -> None:
        assert lock.read_image_lock(planned_onto()).wheels == ()

    def test_a_chosen_nccl(self) -> None:
        request = lock.lock_request(planned_onto(nccl="2.31.2"))
        assert request.requirements == ("nvidia-nccl-cu13==2.31.2",)
        assert request.installed == ("numpy==2.3.0", "torch==2.15.0+cu132")

    def test_a_package_that_is_there_needs_no_wheel(self, tmp_path: Path) -> None:
        beside = replace(planned_onto(), python_packages=("einops", "numpy"))
        write_lock(tmp_path, lock.lock_request(beside), make_wheel("einops", "0.8.2"))
        assert [wheel.name for wheel in lock.read_image_lock(beside, tmp_path).wheels] == ["einops"]

    def test_packages_for_another_cuda(self, tmp_path: Path) -> None:
        beside = replace(planned_onto(), python_packages=("einops",))
        write_lock(
            tmp_path, lock.lock_request(beside), make_wheel("nvidia-nccl-cu12", "2.30.7"), make_wheel("einops", "1")
        )
        with pytest.raises(RdmaImagesError, match=r"wheels bring nvidia-nccl-cu12 2\.30\.7, but"):
            lock.read_image_lock(beside, tmp_path)
