"""Every source can be replaced; mistakes are refused where written; secrets stay hidden."""

import re
import ssl
from collections.abc import Callable
from pathlib import Path

import certifi
import pytest

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.source import Source
from rdma_images.inputs import mirrors
from rdma_images.inputs.sources import COMPONENTS
from rdma_images.registry.credentials import Login

TARBALL = Source("tool-1.2.0", "tool", "download", "https://vendor.example/a/tool-1.2.0.tar.gz", "sha256:0")
BASE = Source("base-ubuntu24.04", "base", "base", "docker.io/library/ubuntu:24.04", "sha256:0")
ARCHIVE = Source("debian-trixie", "debian", "apt", "https://debian.example/debian", "archive-signature")
INDEX = Source("package-index", "package-index", "index", "https://index.example/simple", "")

HOST = "127.0.0.1:1"  # where nothing answers
KINDS = ("base", "download", "index", "apt")


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., mirrors.Mirrors]:
    """Read mirrors.yaml with the text given."""

    def read(text: str, **environ: str) -> mirrors.Mirrors:
        (tmp_path / "mirrors.yaml").write_text(text)
        return mirrors.load(tmp_path / "mirrors.yaml", environ)

    return read


def test_without_a_file_everything_comes_from_upstream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    loaded = mirrors.load(environ={})
    assert [loaded.address(source) for source in (TARBALL, BASE, ARCHIVE, INDEX)] == [None] * 4
    assert loaded.ca_bundle.is_file()


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    for named in ({"path": tmp_path / "none.yaml", "environ": {}}, {"environ": {"RDMA_IMAGES_MIRRORS": "/none.yaml"}}):
        with pytest.raises(RefusedError, match=r"none\.yaml: No such file"):
            mirrors.load(**named)


@pytest.mark.parametrize(
    ("entry", "source", "address"),
    [
        ("tool: https://mirror.example/files/", TARBALL, "https://mirror.example/files/tool-1.2.0.tar.gz"),
        ("tool: https://mirror.example/other.tgz", TARBALL, "https://mirror.example/other.tgz"),
        ("tool-1.2.0: /srv/tool.tgz", TARBALL, "/srv/tool.tgz"),
        ("tool-1.2.0: file:///srv/tool.tgz", TARBALL, "file:///srv/tool.tgz"),
        ("download: https://mirror.example/files/", TARBALL, "https://mirror.example/files/tool-1.2.0.tar.gz"),
        ("base: registry.example/hub/", BASE, "registry.example/hub/library/ubuntu:24.04"),
        ("base-ubuntu24.04: registry.example/ubuntu:24.04", BASE, "registry.example/ubuntu:24.04"),
        ("debian: https://mirror.example/debian/", ARCHIVE, "https://mirror.example/debian"),
        ("apt: https://mirror.example/debian", ARCHIVE, "https://mirror.example/debian"),
        ("index: https://mirror.example/simple/", INDEX, "https://mirror.example/simple"),
    ],
)
def test_an_entry_replaces_a_source(
    load: Callable[..., mirrors.Mirrors], entry: str, source: Source, address: str
) -> None:
    assert load(f"sources:\n  {entry}\n").address(source) == address


def test_the_narrowest_name_wins(load: Callable[..., mirrors.Mirrors]) -> None:
    loaded = load("sources:\n  tool-1.2.0: /id\n  tool: /component\n  download: /kind\n")
    assert loaded.address(TARBALL) == "/id"
    other = Source("tool-1.3.0", "tool", "download", "https://vendor.example/x", "")
    assert loaded.address(other) == "/component"


def test_an_entry_that_names_no_source_is_refused_with_its_line(load: Callable[..., mirrors.Mirrors]) -> None:
    loaded = load("sources:\n  tool: /a\n  tol: /b\n")
    with pytest.raises(RefusedError, match=r"mirrors\.yaml:3: tol is no source\ndid you mean tool\?"):
        loaded.check(["tool"])
    load("sources:\n  tool: /a\n  tool-9.9: /b\n  base: c/\n").check(["tool"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sorces: {}\n", r":1: unknown key 'sorces'.*did you mean sources"),
        ("sources:\n  tool: /a\n  tool: /b\n", ":3: 'tool' is written twice, first in line 2"),
        ("credentials:\n  host.example:\n    username: me\n    password: hunter2\n", ":4: .*a secret is never written"),
        ("credentials:\n  host.example:\n    username: me\n", ":2: credentials.host.example has no 'password': add it"),
        (
            "credentials: {'u:hunter2@host.example': {username: me, password: x}}\n",
            ":1: .*credentials: a name is a host",
        ),
        ("ca-bundle: https://u:hunter2@host.example/x\n", ":1: .*an address is no file"),
        ("sources:\n  tool: ftp://mirror.example/\n", ":2: ftp:// is no supported scheme\ndid you mean http"),
        ("sources:\n  tool: https://host.example/x/?token=hunter2\n", ":2: the address has a query or a fragment"),
        ("sources:\n  tool: https://host.example/x/#hunter2\n", ":2: the address has a query or a fragment"),
        ("sources:\n  base: u:hunter2@host.example/x/\n", ":2: a login in the address\nwrite it under credentials"),
        ("sources:\n  index: https://u:hunter2@host.example/x\n", ":2: a login in the address"),
        ("ca-bundle: /none.pem\n", ":1: the CA bundle /none.pem cannot be used: No such file"),
    ],
)
def test_a_file_that_is_wrong_says_where(load: Callable[..., mirrors.Mirrors], text: str, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as error:
        load(text)
    assert "hunter2" not in str(error.value)


def test_logins_come_by_reference(load: Callable[..., mirrors.Mirrors], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from file\n")
    text = (
        "credentials:\n"
        "  one.example: {username: me, password: 'env:ONE'}\n"
        f"  two.example:5000: {{username: you, password: 'file:{tmp_path}/secret'}}\n"
    )
    loaded = load(text, ONE="from environment")
    assert loaded.login("https://one.example/x") == Login("me", "from environment")
    assert loaded.login("two.example:5000/library/ubuntu:24.04") == Login("you", "from file")
    assert loaded.login("https://three.example/") is None
    assert "from" not in repr(loaded)


def test_a_missing_secret_is_named(load: Callable[..., mirrors.Mirrors]) -> None:
    with pytest.raises(RefusedError, match=r"mirrors\.yaml:2: the environment has no ONE\nset it"):
        load("credentials:\n  one.example: {username: me, password: 'env:ONE'}\n")
    with pytest.raises(RefusedError, match="cannot be read: /none: No such file"):
        load("credentials:\n  one.example: {username: me, password: 'file:/none'}\n")


def test_a_client_gets_an_address_with_its_login(load: Callable[..., mirrors.Mirrors]) -> None:
    loaded = load("credentials: {'index.example:8443': {username: me, password: 'env:P'}}", P="p@ss")
    assert "p@ss" not in repr(loaded)
    assert loaded.with_login("https://index.example:8443/simple") == "https://me:p%40ss@index.example:8443/simple"


@pytest.mark.parametrize(
    ("address", "bare"),
    [
        ("u:SECRET@host.example/x/", "host.example/x/"),
        ("https://u:SECRET@host.example:8443/x", "https://host.example:8443/x"),
        ("./folder@2/x", "./folder@2/x"),
        ("registry.example/hub@sha256:abc", "registry.example/hub@sha256:abc"),
    ],
)
def test_no_address_that_is_shown_has_a_login_in_it(address: str, bare: str) -> None:
    plain_address, login = mirrors.split_login(address)
    assert plain_address == bare
    assert (login is not None) == ("SECRET" in address)


def test_a_signature_keeps_its_ending_and_a_key_its_name() -> None:
    upstream = "https://vendor.example/a/tool.tar.gz"
    assert mirrors.sibling_address("/srv/t.tgz", upstream, f"{upstream}.sig") == "/srv/t.tgz.sig"
    assert mirrors.sibling_address("https://m.example/f/t.tgz", upstream, "https://vendor.example/tool.key") == (
        "https://m.example/f/tool.key"
    )


def test_the_ca_bundle_is_the_chosen_one_then_the_environments_then_the_systems(
    load: Callable[..., mirrors.Mirrors], tmp_path: Path
) -> None:
    copies = {name: tmp_path / f"{name}.pem" for name in ("file", "system")}
    for copy in copies.values():
        copy.write_bytes(Path(certifi.where()).read_bytes())
    text = f"ca-bundle: {copies['file']}\n"
    environ = {"SSL_CERT_FILE": str(copies["system"])}
    assert load("", **environ).ca_bundle == copies["system"]
    assert load(text, **environ).ca_bundle == copies["file"]
    assert ssl.create_default_context(cafile=str(load("").ca_bundle)).cert_store_stats()["x509"]


@pytest.mark.parametrize("content", ["", "no certificate"])
def test_a_bundle_without_a_certificate_is_refused(
    load: Callable[..., mirrors.Mirrors], tmp_path: Path, content: str
) -> None:
    (tmp_path / "ca.pem").write_text(content)
    with pytest.raises(RefusedError, match=r"mirrors\.yaml:1: the CA bundle .* cannot be used: "):
        load(f"ca-bundle: {tmp_path}/ca.pem\n")


def test_the_example_is_a_valid_file() -> None:
    example = paths.PROJECT / "mirrors.example.yaml"
    variables = dict.fromkeys(re.findall(r"env:(\w+)", example.read_text()), "secret")
    mirrors.load(example, variables).check(COMPONENTS)
