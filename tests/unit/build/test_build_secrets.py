"""The secrets of a build: complete for its base, private, gone with the build."""

import shutil
import ssl
import subprocess
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.build import build_secrets
from rdma_images.build.build_spec import BuildSpec
from rdma_images.components.definition import apt_source
from rdma_images.core.source import Source, Supply
from rdma_images.inputs import sources
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.registry.credentials import Login
from rdma_images.render import bake
from tests.support import locks
from tests.support.source_packages import planned_image

BUNDLE = Path(ssl.get_default_verify_paths().openssl_cafile)


def apt(name: str, address: str, suites: str, role: str = "base") -> Supply:
    archive = apt_source(name, role, address, suites.split(), "main", "/keyring.gpg")
    return Supply(archive, "mirror", address, True, "")


def index(address: str) -> Supply:
    source = Source("package-index", "package-index", "index", address, "")
    return Supply(source, "mirror", address, True, "")


SUPPLIES = (
    apt("debian", "https://apt.example/debian", "trixie trixie-updates"),
    apt("debian-security", "http://plain.example:8080/security", "trixie-security"),
    apt("debian", "https://apt.example/debian", "trixie", role="builder"),
    index("https://index.example/simple"),
)


@pytest.fixture
def mirrors() -> Mirrors:
    logins = {
        "apt.example": Login("me", "apt-password"),
        "plain.example:8080": Login("me", "plain-password"),
        "index.example": Login("me", "index-password"),
    }
    return Mirrors(BUNDLE, {"INDEX": ("https://index.example/simple", "")}, logins)


@contextmanager
def provided(mirrors: Mirrors) -> Iterator[dict[str, Path]]:
    """Yield the secrets of one image's build, by id."""
    spec = BuildSpec(planned_image(), locks.wheels(planned_image()), facts.load(), "sha256:0")
    supplies = {spec.image.id: SUPPLIES}
    with build_secrets.secret_files([spec], supplies, {"helper": spec.image.id}, mirrors) as files:
        assert files["helper"] == files[bake.bake_target_name(spec.image.id)]
        yield files["helper"]


def test_only_this_user_can_read_them_and_only_while_the_build_runs(
    mirrors: Mirrors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    killed = tmp_path / "secrets" / "killed" / "netrc"
    killed.parent.mkdir(parents=True)
    killed.write_text("machine x", encoding="utf-8")
    with suppress(KeyboardInterrupt), provided(mirrors) as files:
        assert not killed.exists()
        roles = [f"{name}{role}" for name in ("apt-auth", "apt-config", "apt-sources") for role in ("", "-builder")]
        assert sorted(files) == sorted([*roles, "ca-bundle", "netrc", "pip-config", "uv-config"])
        assert files["ca-bundle"] == BUNDLE
        secret_files = [path for path in files.values() if path != BUNDLE]
        assert {oct(path.stat().st_mode & 0o777) for path in secret_files} == {"0o600"}
        assert {oct(path.parent.stat().st_mode & 0o777) for path in secret_files} == {"0o700"}
        raise KeyboardInterrupt
    assert not (tmp_path / "secrets").exists()


def test_the_package_index_reaches_uv_and_pip(mirrors: Mirrors) -> None:
    texts = build_secrets.secret_texts(SUPPLIES, mirrors)
    assert tomllib.loads(texts["uv-config"]) == {"index": [{"url": "https://index.example/simple", "default": True}]}
    pip = ConfigParser()
    pip.read_string(texts["pip-config"])
    assert pip["global"]["index-url"] == "https://index.example/simple"
    assert "machine index.example login me password index-password\n" in texts["netrc"]


def test_an_archives_login_goes_to_apt_with_its_scheme(mirrors: Mirrors) -> None:
    texts = build_secrets.secret_texts(SUPPLIES, mirrors)
    assert texts["apt-auth"] == (
        "machine http://plain.example:8080 login me password plain-password\n"
        "machine https://apt.example login me password apt-password\n"
    )
    assert "plain-password" not in texts["apt-auth-builder"]
    assert not any("password" in texts[name] for name in ("apt-sources", "apt-config", "uv-config", "pip-config"))


def test_every_suite_of_every_archive_is_in_the_sources(mirrors: Mirrors) -> None:
    assert build_secrets.secret_texts(SUPPLIES, mirrors)["apt-sources"] == (
        "deb [signed-by=/keyring.gpg] https://apt.example/debian trixie main\n"
        "deb [signed-by=/keyring.gpg] https://apt.example/debian trixie-updates main\n"
        "deb [signed-by=/keyring.gpg] http://plain.example:8080/security trixie-security main\n"
    )


def test_a_base_whose_archive_nobody_named_keeps_its_own_sources(mirrors: Mirrors) -> None:
    texts = build_secrets.secret_texts([apt("ubuntu", "", "noble")], mirrors)
    assert texts["apt-sources"] == ""
    assert "sourcelist" not in texts["apt-config"]
    assert "CaInfo" in texts["apt-config"]


@pytest.mark.skipif(not shutil.which("apt-config"), reason="apt is not installed")
def test_apt_understands_its_configuration(mirrors: Mirrors, tmp_path: Path) -> None:
    (tmp_path / "apt.conf").write_text(build_secrets.secret_texts(SUPPLIES, mirrors)["apt-config"])
    dump = subprocess.run(
        ["apt-config", "dump"],
        env={"APT_CONFIG": str(tmp_path / "apt.conf"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert 'Dir::Etc::sourcelist "/run/secrets/apt-sources";' in dump
    assert 'Dir::Etc::netrc "/run/secrets/apt-auth";' in dump
    assert 'Acquire::https::CaInfo "/run/secrets/ca-bundle";' in dump


def test_the_login_of_this_machines_own_index_is_known_to_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdma_images.inputs.package_index.index_address", lambda: "https://me:own@index.example/simple")
    assert sources.index_source().upstream == "https://index.example/simple"
    texts = build_secrets.secret_texts([index("https://index.example/simple")], Mirrors(BUNDLE))
    assert texts["netrc"] == "machine index.example login me password own\n"
    assert "own" not in texts["uv-config"]
