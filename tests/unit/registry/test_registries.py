"""registries.yaml: strict, without secrets, and its mistakes told with file and line."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from rdma_images.core import yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.registry import registries
from rdma_images.registry.credentials import Login, docker_environment, resolve_secret
from rdma_images.registry.registries import EXAMPLE, Ecr, Oci, Registries, is_loopback


def read(text: str) -> Registries:
    return yaml_file.loads(text, Registries, "registries.yaml")


def refused(text: str) -> str:
    with pytest.raises(RefusedError) as caught:
        read(text)
    return str(caught.value)


def test_the_example_is_valid_and_shows_every_kind() -> None:
    loaded = registries.load(EXAMPLE).registries
    assert {entry.kind for entry in loaded.values()} == {"ecr", "acr-aliyun", "oci"}


def test_without_a_file_the_fix_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"copy registries\.example\.yaml"):
        registries.load(tmp_path / "registries.yaml")


def test_a_secret_written_out_is_refused_and_not_repeated() -> None:
    refusal_text = refused(
        "registries:\n  r:\n    kind: oci\n    host: h.example\n    credentials:\n"
        "      username: env:U\n      password: hunter2\n"
    )
    assert "registries.yaml:7" in refusal_text
    assert "env:NAME or file:PATH" in refusal_text
    assert "hunter2" not in refusal_text


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("registries:\n  r:\n    kind: quay\n", 3, "quay"),
        ("registries:\n  r:\n    kind: ecr\n    region: us-east-1\n", 2, "account"),
        ("registries:\n  r:\n    kind: ecr\n    account: '12'\n    region: us-east-1\n", 4, "account"),
        ("registries:\n  r:\n    kind: oci\n    host: h\n    prefix: Team/X\n", 5, "repository prefix"),
        ("registries:\n  r:\n    kind: oci\n    host: h\n    hots: h\n", 5, "hots"),
        ("registries:\n  r:\n    kind: oci\n    host: https://h.example\n", 4, "write name or name:port"),
        ("registries:\n  r:\n    kind: oci\n    host: h.example/training\n", 4, "write name or name:port"),
        ("registries:\n  r:\n    kind: oci\n    host: 127.0.0.1:x@h.example\n", 4, "write name or name:port"),
        ("registries:\n  r:\n    kind: acr-aliyun\n    region: r\n    namespace: n\n", 2, "instance"),
    ],
)
def test_mistakes_have_their_line(text: str, line: int, words: str) -> None:
    refusal_text = refused(text)
    assert f"registries.yaml:{line}: " in refusal_text
    assert words in refusal_text


def test_unknown_names_get_the_near_ones() -> None:
    loaded = read("registries:\n  team-ecr:\n    kind: ecr\n    account: '123456789012'\n    region: us-east-1\n")
    with pytest.raises(RefusedError, match="did you mean team-ecr"):
        loaded.pick(("team-erc",))
    with pytest.raises(RefusedError, match="--to NAME"):
        loaded.pick(())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:5000", True),
        ("127.8.9.1", True),
        ("localhost:5000", True),
        ("[::1]:5000", True),
        ("[::1]", True),
        ("127.0.0.1:x@h.example", False),
        ("127.0.0.1@h.example", False),
        ("localhost/h.example", False),
        ("[::1]h.example", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("10.0.0.1:5000", False),
        ("registry.example.com", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_registry_of_a_host() -> None:
    loaded = registries.load(EXAMPLE)
    assert isinstance(loaded.for_host("123456789012.dkr.ecr.us-east-1.amazonaws.com"), Ecr)
    assert loaded.for_host("registry.example.com") == loaded.registries["mirror"]
    assert loaded.for_host("ghcr.io") == Oci(kind="oci", host="ghcr.io")


def test_references_lead_to_secrets(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    assert resolve_secret(f"file:{tmp_path}/secret") == "from a file"
    assert resolve_secret("env:A", {"A": "from the environment"}) == "from the environment"
    with pytest.raises(RefusedError, match="has no B"):
        resolve_secret("env:B", {})
    with pytest.raises(RefusedError, match="cannot be read"):
        resolve_secret(f"file:{tmp_path}/none")


def test_docker_gets_a_login_by_a_helper_beside_what_it_has(tmp_path: Path) -> None:
    login = Login("ci", "hunter2")
    (tmp_path / "config.json").write_text('{"credHelpers": {"other.example": "vault"}, "auths": {}}')
    (tmp_path / "buildx").mkdir()
    with docker_environment(
        "h.example", login, {"DOCKER_CONFIG": str(tmp_path), "PATH": os.environ["PATH"]}
    ) as environ:
        folder = Path(environ["DOCKER_CONFIG"])
        config = json.loads((folder / "config.json").read_text())
        assert config == {"credHelpers": {"other.example": "vault", "h.example": "rdma-images"}, "auths": {}}
        assert (folder / "buildx").samefile(tmp_path / "buildx")
        assert not any(login.password in path.read_text() for path in folder.glob("*") if path.is_file())
        helper = subprocess.run(["docker-credential-rdma-images", "get"], env=environ, capture_output=True, check=True)
    assert json.loads(helper.stdout) == {"ServerURL": "h.example", "Username": "ci", "Secret": "hunter2"}
    assert not folder.exists()
    assert "h.example" not in (tmp_path / "config.json").read_text()


def test_a_login_does_not_show_its_secrets() -> None:
    assert "hunter2" not in repr(Login("ci", "hunter2"))
