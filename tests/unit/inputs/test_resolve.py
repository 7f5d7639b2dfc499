"""uv resolves with an index of our own; wheels are chosen as by an installer."""

import dataclasses
import hashlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from packaging.pylock import Package, PackageWheel
from packaging.tags import create_compatible_tags_selector
from packaging.utils import canonicalize_name
from packaging.version import Version

from rdma_images.components.nccl import NcclDetails
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Component
from rdma_images.inputs import lock, resolve
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.wheels import LockRequest
from rdma_images.plan import local_packages
from rdma_images.registry.credentials import Login
from tests.support.images import planned_image
from tests.support.loopback import Answer, Site, serve
from tests.support.package_index import make_source, make_wheel, mirrors, publish

REQUEST = LockRequest(requirements=(), python="3.13", platform="linux/amd64")
TAG = "manylinux_2_28_x86_64"


@pytest.fixture
def index() -> Iterator[Site]:
    """Yield an index whose torch pins its NCCL, as the real one does."""
    with serve() as site:
        publish(site, "torch", make_wheel("torch", "2.15.0", "nvidia-nccl-cu13==2.30.7", "plain"))
        publish(
            site,
            "nvidia-nccl-cu13",
            make_wheel("nvidia-nccl-cu13", "2.30.7", tag=f"py3-none-{TAG}"),
            make_wheel("nvidia-nccl-cu13", "2.32.3", tag=f"py3-none-{TAG}"),
        )
        publish(site, "plain", make_wheel("plain", "1.0"), make_wheel("plain", "1.1", tag="cp313-cp313-win_amd64"))
        yield site


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))


def test_a_lock_has_every_wheel_with_its_hash_and_size(index: Site, tmp_path: Path) -> None:
    new_lock = lock.create_lock(planned_image(), mirrors(index), tmp_path)
    assert [(wheel.name, wheel.version) for wheel in new_lock.wheels] == [
        ("nvidia-nccl-cu13", "2.30.7"),
        ("plain", "1.0"),
        ("torch", "2.15.0"),
    ]
    for locked_wheel in new_lock.wheels:
        answer = index.answers[f"/files/{locked_wheel.file}"]
        assert isinstance(answer, Answer)
        body = answer.body
        assert (locked_wheel.size, locked_wheel.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    assert lock.read_image_lock(planned_image(), tmp_path) == new_lock
    assert lock.create_lock(planned_image(), mirrors(index), tmp_path).text() == new_lock.text()
    assert "127.0.0.1" not in lock.lock_path(new_lock.request, tmp_path).read_text()


def test_a_chosen_nccl_replaces_torchs(index: Site, tmp_path: Path) -> None:
    newer = planned_image(components={"nccl": Component("nccl", "2.32.3", "--set", NcclDetails("nvidia-nccl-cu13"))})
    new_lock = lock.create_lock(newer, mirrors(index), tmp_path)
    assert {wheel.name: wheel.version for wheel in new_lock.wheels}["nvidia-nccl-cu13"] == "2.32.3"


def test_what_has_no_solution_says_why(index: Site, tmp_path: Path) -> None:
    with pytest.raises(RdmaImagesError, match=r"no wheels go together: .*nothing-like-it"):
        lock.create_lock(planned_image(python_packages=("nothing-like-it",)), mirrors(index), tmp_path)


def test_a_package_without_what_it_requires(index: Site) -> None:
    publish(index, "both", make_wheel("both", "1.0", "nothing-like-it"))
    request = REQUEST.model_copy(update={"requirements": ("both", "plain"), "no_deps": ("both",)})
    resolved = resolve.resolve_wheels(request, f"{index.address}/simple", mirrors(index))
    assert [wheel.name for wheel in resolved.wheels] == ["both", "plain"]
    assert '"no_deps": [' in resolved.text()


def test_a_commit_without_what_it_requires_is_not_fetched(index: Site) -> None:
    """DeepEP's setup.py imports torch and declares nothing."""
    commit = f"git+https://nowhere.invalid/own.git@{'a' * 40}"
    request = REQUEST.model_copy(update={"requirements": (f"own @ {commit}", "plain"), "no_deps": ("own",)})
    own, _ = resolve.resolve_wheels(request, f"{index.address}/simple", mirrors(index)).wheels
    assert (own.origin, own.version, own.title) == (commit, "", f"own from {commit}")


class TestOntoAnImage:
    """Packages for the Python of an image that exists, beside what is there."""

    # A build of torch of the image's maker, as NVIDIA's: no index has it.
    THERE = ("nvidia-nccl-cu13==2.30.7", "plain==1.0", "torch==2.16.0a0+6c8.nv26.10")

    @pytest.fixture
    def site(self, index: Site) -> Site:
        publish(index, "fast", make_wheel("fast", "1.0", "torch>=2.10", "plain<2", "helper"))
        publish(index, "helper", make_wheel("helper", "3.0"))
        publish(index, "strict", make_wheel("strict", "1.0", "plain>=1.5"))
        publish(index, "plain", make_wheel("plain", "1.0", "helper"), make_wheel("plain", "1.6"))
        return index

    def names(self, site: Site, *requirements: str, there: tuple[str, ...] = THERE) -> list[tuple[str, str]]:
        request = REQUEST.model_copy(update={"requirements": requirements, "installed": there})
        return [
            (wheel.name, wheel.version)
            for wheel in resolve.resolve_wheels(request, f"{site.address}/simple", mirrors(site)).wheels
        ]

    def test_what_is_there_is_left_out(self, site: Site) -> None:
        assert self.names(site, "fast", "plain") == [("fast", "1.0"), ("helper", "3.0")]
        assert self.names(site, "plain") == []

    def test_a_package_that_needs_another_version_of_what_is_there(self, site: Site) -> None:
        with pytest.raises(resolve.NoSolutionError, match=r"plain>=1\.5(?s:.*)\nthe packages of the image stay"):
            self.names(site, "strict")

    def test_a_named_version_replaces(self, site: Site) -> None:
        there = tuple(line for line in self.THERE if not line.startswith("plain"))
        assert self.names(site, "strict", "plain>=1.5", there=there) == [("plain", "1.6"), ("strict", "1.0")]

    def test_an_extra_of_what_is_there_brings_what_it_requires(self, site: Site) -> None:
        metadata = make_wheel("plain", "1.0", 'helper; extra == "more"')
        publish(site, "plain", metadata)
        assert self.names(site, "plain[more]") == [("helper", "3.0")]

    def test_an_unknown_package(self, site: Site) -> None:
        with pytest.raises(resolve.NoSolutionError, match=r"nothing-like-it was not found(?s:.*)\ncorrect the"):
            self.names(site, "nothing-like-it")

    def test_a_package_without_a_wheel(self, site: Site) -> None:
        publish(site, "bare", make_source("bare", "1.0", ""))
        with pytest.raises(resolve.NoSolutionError, match=r"\nmake a wheel of it with pip wheel in that image"):
            self.names(site, "bare")

    def test_an_index_that_does_not_answer_is_unreachable(self) -> None:
        request = REQUEST.model_copy(update={"requirements": ("fast",), "installed": self.THERE})
        gone = Mirrors(Path(__file__).parent / "none.pem", {"index": ("http://127.0.0.1:9/simple", "mirrors.yaml")}, {})
        with pytest.raises(RdmaImagesError, match=r"http://127\.0\.0\.1:9/simple/fast/ is unreachable") as caught:
            resolve.resolve_wheels(request, "http://127.0.0.1:9/simple", gone)
        assert not isinstance(caught.value, resolve.NoSolutionError)


def test_an_index_behind_a_login(index: Site, tmp_path: Path) -> None:
    host = index.address.removeprefix("http://")
    lock.create_lock(planned_image(), mirrors(index, logins={host: Login("me", "p@ss/word")}), tmp_path)
    assert {request.login for request in index.requests} == {"me:p@ss/word"}


def listed(*names: str, url: str = "https://index.example") -> tuple[PackageWheel, ...]:
    return tuple(PackageWheel(name=name, url=f"{url}/{name}", hashes={"sha256": "0" * 64}) for name in names)


def test_a_size_that_gets_lost_is_asked_for_again(index: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "RETRY_POLICY", dataclasses.replace(resolve.RETRY_POLICY, first_wait=0.0))
    index.answers["/x-1.0-py3-none-any.whl"] = [Answer(status=502), Answer(b"1234567")]
    (wheel,) = listed("x-1.0-py3-none-any.whl", url=index.address)
    assert resolve.file_size(wheel, mirrors(index)) == 7
    del index.answers["/x-1.0-py3-none-any.whl"]
    with pytest.raises(RdmaImagesError, match="answered 404"):
        resolve.file_size(wheel, mirrors(index))


SELECTOR = create_compatible_tags_selector(resolve.accepted_tags(REQUEST))


@pytest.mark.parametrize(
    ("version", "is_meant"),
    [("0.3.1.dev3", False), ("0.0.0", False), ("0.0.0.dev0", False), ("0.0.1", True), ("0.60b0", True), ("2.0", True)],
)
def test_what_nobody_means_is_refused_unless_it_is_named(version: str, is_meant: bool) -> None:
    """0.3.1.dev3 of 2020 is the only wheel of deepspeed; all releases of xformers are 0.0.x."""
    packages = [Package(name=canonicalize_name("deepspeed"), version=Version(version))]
    refusal = pytest.raises(RefusedError, match=r"newer ones may have no wheel.*\n.*deepspeed under source-packages")
    with nullcontext() if is_meant else refusal:
        resolve.refuse_placeholders(packages, REQUEST.model_copy(update={"requirements": ("deepspeed",)}))
    named = REQUEST.model_copy(update={"requirements": (f"deepspeed=={version}",)})
    resolve.refuse_placeholders(packages, named)


@pytest.mark.parametrize(
    ("files", "best"),
    [
        # torch 2.10.0 is on the index twice; installers take the one with the build number.
        (["a-1-cp313-cp313-manylinux_2_28_x86_64", "a-1-3-cp313-cp313-manylinux_2_28_x86_64"], 1),
        (["a-1-py3-none-any", "a-1-cp313-cp313-manylinux_2_28_x86_64"], 1),
        (["a-1-cp313-cp313-manylinux_2_34_x86_64", "a-1-cp313-cp313-manylinux_2_17_x86_64"], 0),
        (["a-1-cp313-cp313-manylinux_2_36_x86_64", "a-1-cp313-cp313-manylinux2014_x86_64"], 1),
        (["a-1-cp310-abi3-manylinux2014_x86_64", "a-1-py3-none-any"], 0),
        (["a-1-cp314-cp314-manylinux2014_x86_64", "a-1-py2.py3-none-any"], 1),
    ],
)
def test_the_best_wheel_is_taken(files: list[str], best: int) -> None:
    wheels = listed(*(f"{file}.whl" for file in files))
    for given in (wheels, wheels[::-1]):
        package = Package(name=canonicalize_name("a"), wheels=given)
        assert resolve.best_wheel(package, SELECTOR) is wheels[best]


@pytest.mark.parametrize(
    "files", [[], ["a-1-cp313-cp313-win_amd64.whl"], ["a-1-cp313-cp313-manylinux2014_aarch64.whl"]]
)
def test_a_package_without_a_wheel_for_us(files: list[str]) -> None:
    package = Package(name=canonicalize_name("a"), version=Version("1"), wheels=listed(*files))
    with pytest.raises(RdmaImagesError, match=r"a 1 has no wheel for this python and platform\nname another"):
        resolve.best_wheel(package, SELECTOR)


class TestLocalPackages:
    """Packages that no index has."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(paths, "PROJECT", tmp_path)
        (tmp_path / "project").mkdir()
        return tmp_path

    def test_a_wheel_and_a_project_bring_what_they_require(self, index: Site, folder: Path) -> None:
        file, content = make_wheel("my-ops", "1.0", "plain", tag="cp313-cp313-linux_x86_64")
        (folder / file).write_bytes(content)
        (folder / "project" / "pyproject.toml").write_text(
            '[project]\nname = "my-project"\nversion = "0.3"\ndependencies = ["torch==2.15.0"]\n'
        )
        pins = [local_packages.pin(text, folder, "matrix.yaml:3") for text in (f"./{file}", "./project")]
        resolved = resolve.resolve_wheels(
            REQUEST.model_copy(update={"requirements": tuple(pins)}), f"{index.address}/simple", mirrors(index)
        )
        assert [(source.name, source.origin) for source in resolved.sources] == [
            ("my-ops", f"./{file}"),
            ("my-project", "./project"),
        ]
        names = {locked_wheel.name for locked_wheel in resolved.wheels}
        assert names == {"my-ops", "my-project", "nvidia-nccl-cu13", "plain", "torch"}
        assert resolved.sources[0].sha256 == hashlib.sha256(content).hexdigest()
        assert str(folder) not in resolved.text()
        other = REQUEST.model_copy(update={"requirements": (pins[0],), "python": "3.12"})
        with pytest.raises(RdmaImagesError, match=rf"\./{file} is no wheel for Python 3\.12 on linux/amd64"):
            resolve.resolve_wheels(other, f"{index.address}/simple", mirrors(index))

    def test_a_setup_py_that_imports_what_it_does_not_declare(self, index: Site, folder: Path) -> None:
        settings = folder / "project" / "pyproject.toml"
        backend = '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
        settings.write_text(backend)
        (folder / "project" / "setup.py").write_text("import torch\n")
        request = REQUEST.model_copy(update={"requirements": (local_packages.pin("ops @ ./project", folder, "x:1"),)})
        with pytest.raises(RdmaImagesError) as caught:
            resolve.resolve_wheels(request, f"{index.address}/simple", mirrors(index))
        assert str(caught.value).startswith("ops: its setup.py imports torch")
        assert "or give it no-deps in package-options" in str(caught.value)
        # What the message says helps: setup.py is not run any more.
        alone = request.model_copy(update={"no_deps": ("ops",)})
        assert resolve.resolve_versions(alone, f"{index.address}/simple", mirrors(index)) == {"ops": ""}
        settings.write_text(backend + '[project]\nname = "ops"\nversion = "1"\ndependencies = ["plain"]\n')
        resolved = resolve.resolve_wheels(request, f"{index.address}/simple", mirrors(index))
        assert {wheel.name for wheel in resolved.wheels} == {"ops", "plain"}

    def test_an_address_that_another_package_names_is_refused(self, index: Site, folder: Path) -> None:
        for name in ("project", "other"):
            (folder / name).mkdir(exist_ok=True)
            (folder / name / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1"\n')
        with (folder / "project" / "pyproject.toml").open("a") as file:
            file.write(f'dependencies = ["other @ file://{folder}/other"]\n')
        request = REQUEST.model_copy(update={"requirements": (local_packages.pin("./project", folder, "x:1"),)})
        with pytest.raises(RdmaImagesError, match="other comes from an address that another package names"):
            resolve.resolve_wheels(request, f"{index.address}/simple", mirrors(index))


def test_a_file_that_the_requirements_hashes_do_not_allow_is_refused(index: Site, tmp_path: Path) -> None:
    plain = {file: hashlib.sha256(body).hexdigest() for file, body in [make_wheel("plain", "1.0")]}
    good = dataclasses.replace(planned_image(), hashes={"plain": tuple(plain.values())})
    lock.create_lock(good, mirrors(index), tmp_path)
    with pytest.raises(RefusedError, match=r"plain-1\.0-py3-none-any\.whl has the sha256 .*, which the requirements"):
        lock.read_image_lock(dataclasses.replace(good, hashes={"plain": ("0" * 64,)}), tmp_path)


def test_a_source_that_cannot_be_asked_what_it_requires_has_it_written_down(index: Site) -> None:
    publish(index, "scatter", make_source("scatter", "2.1", "plain"))
    request = REQUEST.model_copy(update={"requirements": ("scatter",), "sources": ("scatter",)})
    resolved = resolve.resolve_wheels(request, f"{index.address}/simple", mirrors(index))
    assert [(wheel.name, wheel.file) for wheel in resolved.wheels] == [
        ("plain", "plain-1.0-py3-none-any.whl"),
        ("scatter", "scatter-2.1.tar.gz"),
    ]
