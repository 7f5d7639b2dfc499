"""The secrets of a build: complete for its base, private, gone with the build."""

import shutil
import ssl
import subprocess
import tomllib
from configparser import ConfigParser
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images.build import build_secrets
from rdma_images.core.errors import RefusedError
from rdma_images.core.source import Source, Supply
from rdma_images.inputs import sources
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.registry.credentials import Login

BUNDLE = Path(ssl.get_default_verify_paths().openssl_cafile)


def apt(name: str, address: str, suites: str, role: str = "base") -> Supply:
    extra = {"role": role, "suites": suites, "components": "main", "signed-by": "/keyring.gpg"}
    return Supply(Source(name, name, "apt", address, "", extra=extra), "mirror", address, True, "", 0.0)


def index(address: str) -> Supply:
    source = Source("package-index", "package-index", "index", address, "")
    return Supply(source, "mirror", address, True, "", 0.0)


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


def test_the_ids_are_the_ones_that_the_dockerfiles_mount(mirrors: Mirrors) -> None:
    with build_secrets.provide_secrets(SUPPLIES, mirrors) as files:
        roles = [f"{name}{role}" for name in ("apt-auth", "apt-config", "apt-sources") for role in ("", "-builder")]
        assert sorted(files) == sorted([*roles, "ca-bundle", "netrc", "pip-config", "uv-config"])


def test_only_this_user_can_read_them_and_only_while_the_build_runs(mirrors: Mirrors) -> None:
    with build_secrets.provide_secrets(SUPPLIES, mirrors) as files:
        secret_files = [path for path in files.values() if path != BUNDLE]
        assert {oct(path.stat().st_mode & 0o777) for path in secret_files} == {"0o600"}
        assert {oct(path.parent.stat().st_mode & 0o777) for path in secret_files} == {"0o700"}
        assert files["ca-bundle"] == BUNDLE
    assert not any(path.exists() or path.parent.exists() for path in secret_files)


def test_they_are_gone_after_a_build_that_failed(mirrors: Mirrors) -> None:
    paths: list[Path] = []

    def build() -> None:
        with build_secrets.provide_secrets(SUPPLIES, mirrors) as files:
            paths.append(files["netrc"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build()
    assert not paths[0].parent.exists()


def test_a_build_that_was_killed_leaves_them_to_the_next(
    mirrors: Mirrors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    killed = tmp_path / "secrets" / "killed"
    killed.mkdir(parents=True)
    (killed / "netrc").write_text("machine x", encoding="utf-8")
    with (
        build_secrets.provide_secrets(SUPPLIES, mirrors) as first,
        build_secrets.provide_secrets(SUPPLIES, mirrors) as second,
    ):
        assert not killed.exists()
        assert first["netrc"].is_file()
        assert second["netrc"].is_file()
    assert not any((tmp_path / "secrets").iterdir())


def test_a_bundle_that_buildkit_would_not_take_is_refused(mirrors: Mirrors, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(bytes(build_secrets.MAX_SECRET_BYTES + 1))
    with (
        pytest.raises(RefusedError, match=r"ca\.pem has 512001 bytes"),
        build_secrets.provide_secrets(SUPPLIES, replace(mirrors, ca_bundle=tmp_path / "ca.pem")),
    ):
        pass


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
