"""What comes over a bad line is asked for again; what is not the pinned file is not kept."""

import hashlib
import os
import ssl
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.source import Source, Supply
from rdma_images.inputs import download, download_store, fetch
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.registry.credentials import Login
from tests.support.loopback import Answer, Site, serve

BODY = os.urandom(300_000)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(download, "PAUSE", 0.01)
    return tmp_path / "state"


def mirrors(ca_bundle: Path | None = None, logins: Mapping[str, Login] | None = None) -> Mirrors:
    return Mirrors(ca_bundle or Path(ssl.get_default_verify_paths().openssl_cafile), logins=logins or {})


def make_source(address: str, body: bytes = BODY, pin: str | None = None, signature: str = "", key: str = "") -> Source:
    pin = pin or f"sha256:{hashlib.sha256(body).hexdigest()}"
    return Source("tool-1.0", "tool", "download", address, pin, context="tool", signature=signature, key=key)


def supply(source: Source, address: str | None = None) -> Supply:
    return Supply(source, "mirror" if address else "upstream", address or source.upstream, True, "")


def fetched(source: Source, replaced: Mirrors | None = None, address: str | None = None) -> bytes:
    folder = fetch.fetch([supply(source, address)], replaced or mirrors())["tool-1.0"]
    (file,) = folder.iterdir()
    return file.read_bytes()


def downloaded_files(state: Path) -> list[str]:
    """Return every file of the downloads but the turns'."""
    return sorted(str(p.relative_to(state)) for p in (state / "downloads").rglob("*") if p.is_file())


def test_a_file_is_fetched_once_and_kept_by_its_content(site: Site, state: Path) -> None:
    site.answers["/a/tool-1.0.tar.gz"] = Answer(BODY)
    upstream = make_source(f"{site.address}/a/tool-1.0.tar.gz")
    assert fetched(upstream) == fetched(upstream) == BODY
    assert len(site.requests) == 1
    digest = hashlib.sha256(BODY).hexdigest()
    assert downloaded_files(state) == [f"downloads/sha256/{digest}/tool-1.0.tar.gz", "downloads/sources/tool-1.0.json"]


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_another_checksum_says_expected_and_found_and_keeps_nothing(site: Site, state: Path, algorithm: str) -> None:
    site.answers["/tool"] = Answer(BODY)
    expected, actual = (hashlib.new(algorithm, data).hexdigest() for data in (b"other", BODY))
    with pytest.raises(download.ChecksumError) as error:
        fetched(make_source(f"{site.address}/tool", pin=f"{algorithm}:{expected}"))
    assert f"expected {algorithm}:{expected}, found {algorithm}:{actual}" in str(error.value)
    assert downloaded_files(state) == []


def test_a_broken_connection_is_gone_on_with(site: Site) -> None:
    site.answers["/tool"] = [Answer(BODY, cut=100_000), Answer(BODY)]
    assert fetched(make_source(f"{site.address}/tool")) == BODY
    assert site.requests[1].headers["range"] == f"bytes={100_000 // download.CHUNK * download.CHUNK}-"


def test_a_server_without_ranges_sends_a_file_from_its_start(site: Site) -> None:
    site.answers["/tool"] = [Answer(BODY, cut=100_000), Answer(BODY, ranges=False)]
    assert fetched(make_source(f"{site.address}/tool")) == BODY


@pytest.mark.parametrize(
    ("status", "words", "tries"), [(500, "Internal Server Error", download.TRIES), (404, "Not Found\ntry later, or", 1)]
)
def test_only_a_server_that_fails_is_asked_again(site: Site, status: int, words: str, tries: int) -> None:
    site.answers["/tool"] = Answer(status=status)
    with pytest.raises(RdmaImagesError, match=f"answered {status} {words}"):
        fetched(make_source(f"{site.address}/tool"))
    assert len(site.requests) == tries


def test_a_later_run_goes_on_where_an_earlier_one_was_cut_off(site: Site, state: Path) -> None:
    site.answers["/tool"] = Answer(BODY, cut=70_000)
    with pytest.raises(RdmaImagesError, match="the connection broke off"):
        fetched(make_source(f"{site.address}/tool"))
    part = state / "downloads/partial/tool-1.0/tool"
    have = part.stat().st_size
    assert have == 4 * (70_000 // download.CHUNK * download.CHUNK)
    site.answers["/tool"] = Answer(BODY)
    assert fetched(make_source(f"{site.address}/tool")) == BODY
    assert site.requests[-1].headers["range"] == f"bytes={have}-"
    assert not part.exists()


def test_a_whole_file_that_a_killed_run_left_is_not_downloaded_again(site: Site, state: Path) -> None:
    site.answers["/tool"] = Answer(BODY)
    part = state / "downloads/partial/tool-1.0/tool"
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY)
    assert fetched(make_source(f"{site.address}/tool")) == BODY
    assert [request.headers["range"] for request in site.requests] == [f"bytes={len(BODY)}-"]


@pytest.mark.parametrize("content", [b"of another day" * 10, bytes(len(BODY) + 1)], ids=["other", "longer"])
def test_a_part_of_something_else_is_thrown_away(site: Site, state: Path, content: bytes) -> None:
    part = state / "downloads/partial/tool-1.0/tool"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    site.answers["/tool"] = Answer(BODY)
    assert fetched(make_source(f"{site.address}/tool")) == BODY


def test_a_stored_file_that_rotted_is_fetched_again(site: Site) -> None:
    site.answers["/tool"] = Answer(BODY)
    upstream = make_source(f"{site.address}/tool")
    fetched(upstream)
    cached = download_store.cached_file(upstream)
    assert cached
    cached.write_bytes(bytes(len(BODY)))
    assert fetched(upstream) == BODY


def test_another_pin_does_not_take_what_was_verified_against_the_old_one(site: Site) -> None:
    site.answers["/tool"] = Answer(BODY)
    fetched(make_source(f"{site.address}/tool"))
    with pytest.raises(download.ChecksumError):
        fetched(make_source(f"{site.address}/tool", pin="sha256:" + "0" * 64))


def test_two_runs_at_once_fetch_it_once(site: Site) -> None:
    site.answers["/tool"] = Answer(BODY, silent_for=0.2)
    upstream = make_source(f"{site.address}/tool")
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(fetched(upstream))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [BODY, BODY]
    assert len(site.requests) == 1


def test_a_failure_stops_the_downloads_beside_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE", 1.0)
    site.answers["/slow"] = Answer(status=503)
    slow = Source("slow-1", "slow", "download", f"{site.address}/slow", "sha256:" + "0" * 64, context="slow")
    with pytest.raises(RdmaImagesError, match=r"tool-1\.0: .*404"):
        fetch.fetch([supply(make_source(f"{site.address}/tool")), supply(slow)], mirrors())
    assert sum(request.path == "/slow" for request in site.requests) < download.TRIES


def test_a_login_goes_to_its_host_and_not_where_that_redirects(site: Site) -> None:
    with serve() as elsewhere:
        elsewhere.answers["/tool"] = Answer(BODY)
        redirected = elsewhere.address.replace("127.0.0.1", "localhost")
        site.answers["/tool"] = Answer(status=302, headers={"Location": f"{redirected}/tool"})
        logins = {site.address.removeprefix("http://"): Login("me", "pass:word")}
        assert fetched(make_source(f"{site.address}/tool"), mirrors(logins=logins)) == BODY
        assert site.requests[0].login == "me:pass:word"
        assert elsewhere.requests[0].login is None


def test_a_private_authority_is_trusted_only_when_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serve(context) as site:
        site.answers["/tool"] = Answer(BODY)
        with pytest.raises(RdmaImagesError, match=r"certificate is not trusted by .*: name another ca-bundle"):
            fetched(make_source(f"{site.address}/tool"))
        assert fetched(make_source(f"{site.address}/tool"), mirrors(ca_bundle=tmp_path / "ca.pem")) == BODY


def test_a_local_file_is_verified_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "tool.tar.gz").write_bytes(BODY)
    assert fetched(make_source("https://vendor.example/tool.tar.gz"), address=str(tmp_path / "tool.tar.gz")) == BODY
    with pytest.raises(RdmaImagesError, match="No such file"):
        fetched(make_source("https://vendor.example/x", b"x"), address=f"file://{tmp_path}/none")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a folder with tool.tar.gz, signed by two keys that gpg makes on the spot.

    (folder, fingerprint by name).
    """
    folder = tmp_path_factory.mktemp("keys")
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)

    def gpg(*arguments: str) -> str:
        command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout

    try:
        (folder / "tool.tar.gz").write_bytes(BODY)
        fingerprints = {}
        for name in ("vendor", "stranger", "old"):
            weak = ["--allow-weak-digest-algos", "--cert-digest-algo", "SHA1"] if name == "old" else []
            gpg(*weak, "--quick-generate-key", f"{name} <{name}@example.org>", "rsa2048", "sign", "never")
            listing = gpg("--with-colons", "--fingerprint", name)
            fingerprints[name] = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr"))
            gpg("--armor", "--output", f"{name}.key", "--export", name)
            gpg("--local-user", name, "--output", f"{name}.sig", "--detach-sign", "tool.tar.gz")
        return folder, fingerprints
    except FileNotFoundError:
        pytest.skip("gpg is not installed")
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)


def signed(
    site: Site,
    keys: tuple[Path, dict[str, str]],
    by: str = "vendor",
    key: str = "vendor",
    body: bytes = BODY,
    pin: str = "vendor",
) -> Source:
    folder, fingerprints = keys
    site.answers["/tool.tar.gz"] = Answer(body)
    site.answers["/tool.tar.gz.sig"] = Answer((folder / f"{by}.sig").read_bytes())
    site.answers["/tool.key"] = Answer((folder / f"{key}.key").read_bytes())
    url = f"{site.address}/tool.tar.gz"
    return make_source(url, pin=f"openpgp:{fingerprints[pin]}", signature=f"{url}.sig", key=f"{site.address}/tool.key")


def test_a_signature_of_the_pinned_key_holds(site: Site, keys: tuple[Path, dict[str, str]], state: Path) -> None:
    assert fetched(signed(site, keys)) == BODY
    digest = hashlib.sha256(BODY).hexdigest()
    assert downloaded_files(state) == [f"downloads/sha256/{digest}/tool.tar.gz", "downloads/sources/tool-1.0.json"]


def test_a_key_that_binds_its_name_with_sha1_is_good_enough_for_what_it_signs(
    site: Site, keys: tuple[Path, dict[str, str]]
) -> None:
    assert fetched(signed(site, keys, by="old", key="old", pin="old")) == BODY


def test_without_gpgv_nothing_is_accepted(
    site: Site, keys: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = signed(site, keys)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RdmaImagesError, match="gpgv, which verifies it, is not installed\napt install gpgv"):
        fetched(source)


def test_a_signature_is_looked_for_beside_a_mirror(site: Site, keys: tuple[Path, dict[str, str]]) -> None:
    signed(site, keys)
    upstream = "https://vendor.example/a/tool.tar.gz"
    pin = f"openpgp:{keys[1]['vendor']}"
    mirrored = make_source(upstream, pin=pin, signature=f"{upstream}.sig", key="https://vendor.example/keys/tool.key")
    assert fetched(mirrored, address=f"{site.address}/tool.tar.gz") == BODY


def test_a_changed_file_does_not_pass(site: Site, keys: tuple[Path, dict[str, str]], state: Path) -> None:
    changed = bytes([BODY[0] ^ 1]) + BODY[1:]
    with pytest.raises(RdmaImagesError) as error:
        fetched(signed(site, keys, body=changed))
    assert keys[1]["vendor"] in str(error.value)
    assert downloaded_files(state) == []


def test_a_strangers_signature_does_not_pass(site: Site, keys: tuple[Path, dict[str, str]], state: Path) -> None:
    with pytest.raises(RdmaImagesError, match="is not valid for the pinned key"):
        fetched(signed(site, keys, by="stranger"))
    assert downloaded_files(state) == []


def test_a_strangers_key_beside_its_own_signature_does_not_pass(
    site: Site, keys: tuple[Path, dict[str, str]], state: Path
) -> None:
    with pytest.raises(RdmaImagesError) as error:
        fetched(signed(site, keys, by="stranger", key="stranger"))
    for fingerprint in (keys[1]["vendor"], keys[1]["stranger"]):
        assert fingerprint in str(error.value)
    assert downloaded_files(state) == []


@pytest.mark.parametrize(
    ("path", "answer", "sentence"),
    [
        ("/tool.tar.gz.sig", Answer(b"<html>sign in</html>"), "is not valid for the pinned key"),
        ("/tool.key", Answer(b"<html>sign in</html>"), "is not valid for the pinned key"),
        ("/tool.tar.gz.sig", Answer(status=404), r"the signature of tool-1\.0: .*404"),
    ],
)
def test_without_a_signature_or_a_key_nothing_is_accepted(
    site: Site, keys: tuple[Path, dict[str, str]], path: str, answer: Answer, sentence: str
) -> None:
    source = signed(site, keys)
    site.answers[path] = answer
    with pytest.raises(RdmaImagesError, match=sentence):
        fetched(source)


def test_a_page_in_place_of_a_tarball_is_not_pinned(site: Site, state: Path) -> None:
    site.answers["/tool.tar.gz"] = Answer(b"<html>sign in</html>")
    with pytest.raises(RdmaImagesError, match=r"tool\.tar\.gz is no tarball"):
        fetch.fetch_digest(make_source(f"{site.address}/tool.tar.gz"), mirrors())
    assert not list((state / "downloads").rglob("*.tar.gz"))
