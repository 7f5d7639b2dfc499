"""What a published image is built from again, and which difference of the two is named."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rdma_images.cli.output import show
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import Image
from rdma_images.engine import Engine
from rdma_images.publish import publication_table, reproduce
from rdma_images.publish.attach import attach
from rdma_images.publish.published_images import PublishedImage, read_published
from rdma_images.publish.reproduce import Difference, Reproduction
from rdma_images.registry.client import OCI_MANIFEST, Manifest, Repository, canonical, sha256_digest
from rdma_images.registry.connection import Connection
from rdma_images.registry.registries import Oci
from rdma_images.render import labels
from rdma_images.selection import project
from tests.support.images import planned
from tests.support.publish_doubles import Store, served
from tests.support.published_image import approve, make_artifacts

pytestmark = pytest.mark.usefixtures("folders")

ENGINE = Engine("private", "private", "unix:///nowhere", "26.1", "0.13", "containerd", "host")
LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
CAPABILITY = "SCHILY.xattr.security.capability"
FILES: Mapping[str, dict[str, Any]] = {"etc": {"type": tarfile.DIRTYPE, "mode": 0o755}, "etc/a": {"content": b"first"}}


@pytest.fixture
def repository() -> Iterator[Repository]:
    with served(Store().handler()) as host:
        yield Repository(Connection(host, lambda: None), "training/efa-pytorch")


def layer(files: Mapping[str, dict[str, Any]], level: int = 3) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, fields in files.items():
            member = tarfile.TarInfo(name)
            member.mtime, member.mode = 315532800, 0o644
            content = fields.get("content", b"")
            member.size = len(content)
            for field, value in fields.items():
                if field != "content":
                    setattr(member, field, value)
            archive.addfile(member, io.BytesIO(content))
    return zstandard.ZstdCompressor(level).compress(packed.getvalue())


def write_image(
    files: Mapping[str, dict[str, Any]], config: Mapping[str, Any], below: Sequence[str] = ()
) -> dict[str, bytes]:
    """Return an image's blobs by digest, the manifest last, above layers of `below`."""
    blobs = [layer(files), canonical(config)]
    packed, described = map(sha256_digest, blobs)
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": described, "size": 1},
        "layers": [{"mediaType": kind, "digest": packed, "size": len(blobs[0])} for kind in (*below, LAYER)],
    }
    return {sha256_digest(blob): blob for blob in (*blobs, canonical(body))}


def published(repository: Repository, blobs: Mapping[str, bytes]) -> PublishedImage:
    *parts, manifest = blobs.values()
    for part in parts:
        repository.put_blob(part)
    repository.put_manifest(sha256_digest(manifest), Manifest(OCI_MANIFEST, manifest))
    host = repository.connection.host
    return read_published(f"{repository.ref}@{sha256_digest(manifest)}", Oci(kind="oci", host=host, credentials="none"))


def layout(folder: Path, blobs: Mapping[str, bytes]) -> Path:
    (folder / "blobs" / "sha256").mkdir(parents=True)
    for digest, blob in blobs.items():
        (folder / "blobs" / digest.replace(":", "/")).write_bytes(blob)
    *_, manifest = blobs
    entry = {"mediaType": OCI_MANIFEST, "digest": manifest, "size": 1}
    (folder / "index.json").write_text(json.dumps({"manifests": [entry]}))
    return folder


CONFIG = {"os": "linux", "config": {"Labels": {"a": "1"}}, "created": "2026-11-24T00:00:00Z"}


def differences(
    repository: Repository, folder: Path, files: Mapping[str, dict[str, Any]], config: Mapping[str, Any] = CONFIG
) -> list[Difference]:
    """Return what differs between FILES as published and `files` as built again."""
    layout_path = layout(folder / "layout", write_image(files, config))
    before = published(repository, write_image(FILES, CONFIG))
    return list(reproduce.compare(before, reproduce.read_layout(layout_path), layout_path, folder))


def test_equal_images_have_no_difference(repository: Repository, tmp_path: Path) -> None:
    assert differences(repository, tmp_path, FILES) == []


@pytest.mark.parametrize(
    ("change", "aspect", "values"),
    [
        ({"content": b"other"}, "content", tuple(hashlib.sha256(text).hexdigest() for text in (b"first", b"other"))),
        ({"mode": 0o755}, "mode", ("0644", "0755")),
        ({"uid": 1000, "gid": 5}, "owner", ("0:0", "1000:5")),
        ({"mtime": 1795524514.5}, "time", ("315532800", "1795524514.5")),
        ({"pax_headers": {CAPABILITY: "x"}}, "attributes", ("{}", json.dumps({CAPABILITY: "x"}))),
    ],
)
def test_a_file_is_named_with_what_differs_of_it(
    repository: Repository, tmp_path: Path, change: dict[str, Any], aspect: str, values: tuple[str, str]
) -> None:
    named = differences(repository, tmp_path, {**FILES, "etc/a": {**FILES["etc/a"], **change}})
    assert named == [Difference("layer 1 of 1", "etc/a", aspect, *values)]


def test_a_link_in_the_place_of_a_file_a_missing_and_a_new_file_are_named(
    repository: Repository, tmp_path: Path
) -> None:
    link = {"type": tarfile.SYMTYPE, "linkname": "b"}
    named = differences(repository, tmp_path, {"etc/a": link, "etc/b": {"content": b"new"}})
    aspects = {(difference.path, difference.aspect): (difference.published, difference.rebuilt) for difference in named}
    assert aspects[("etc", "file")] == ("folder", "absent")
    assert aspects[("etc/b", "file")] == ("absent", "file")
    assert aspects[("etc/a", "kind")] == ("file", "symbolic link")
    assert aspects[("etc/a", "link")] == ("", "b")


def test_the_same_files_in_another_order_are_another_form_of_the_tar(repository: Repository, tmp_path: Path) -> None:
    (named,) = differences(repository, tmp_path, {name: FILES[name] for name in reversed(list(FILES))})
    assert (named.part, named.aspect) == ("layer 1 of 1", "form of the tar")


def test_a_changed_label_is_named(repository: Repository, tmp_path: Path) -> None:
    named = differences(repository, tmp_path, FILES, {**CONFIG, "config": {"Labels": {"a": "2", "b": "3"}}})
    assert named == [
        Difference("config", "config.Labels.a", "value", '"1"', '"2"'),
        Difference("config", "config.Labels.b", "value", "absent", '"3"'),
    ]


def test_a_damaged_layer_is_one_sentence(tmp_path: Path) -> None:
    whole = layer(FILES)
    file = tmp_path / "layer"
    for content in (b"", whole[:40], b"x" * 1000, whole[:-10]):
        file.write_bytes(content)
        with pytest.raises(RdmaImagesError, match="cannot be read"):
            reproduce.read_entries(file)


class TestEvidence:
    @pytest.fixture
    def image(self) -> Image:
        return planned()

    def published(
        self, repository: Repository, image: Image, revision: str, below: Sequence[str] = (), **label: str
    ) -> PublishedImage:
        config = {**CONFIG, "config": {"Labels": label}}
        before = published(repository, write_image(FILES, config, below))
        attach(make_artifacts(approve(image, before.digest), revision), before.manifest.descriptor, repository)
        return before

    def test_the_provenance_names_target_axes_and_commit(self, repository: Repository, image: Image) -> None:
        before = self.published(repository, image, "a" * 40, **{"io.rdma-images.rehearsal": "efa-installer-1.50.0"})
        evidence = reproduce.read_evidence(before)
        assert (evidence.target, evidence.commit) == ("efa-pytorch", "a" * 40)
        assert evidence.axes == image.axes
        assert evidence.stand_ins
        assert evidence.tool == ""
        assert evidence.compression == "zstd"
        assert "efa-installer-1.50.0" in evidence.dependencies
        assert {"base-debian13", "debian-trixie"} <= set(evidence.unpinned)

    def test_the_compression_is_that_of_the_layers_above_an_image_below(
        self, repository: Repository, image: Image
    ) -> None:
        before = self.published(repository, image, "a" * 40, below=[LAYER.replace("zstd", "gzip")])
        assert reproduce.read_evidence(before).compression == "zstd"

    def test_an_image_without_provenance_is_refused(self, repository: Repository) -> None:
        with pytest.raises(RefusedError, match="no provenance"):
            reproduce.read_evidence(published(repository, write_image(FILES, CONFIG)))

    def test_an_image_of_uncommitted_files_is_refused(self, repository: Repository, image: Image) -> None:
        with pytest.raises(RefusedError, match="in no commit"):
            reproduce.read_evidence(self.published(repository, image, f"{'a' * 40}-dirty"))

    def test_another_commit_is_refused_with_the_command_that_checks_it_out(
        self, repository: Repository, image: Image
    ) -> None:
        before = self.published(repository, image, "a" * 40)
        with pytest.raises(RefusedError, match=f"git worktree add ../reproduce {'a' * 40}"):
            reproduce.require_same_origin(before, reproduce.read_evidence(before))

    def test_another_version_of_the_tool_is_refused_by_name(self, repository: Repository, image: Image) -> None:
        before = self.published(repository, image, "a" * 40)
        evidence = replace(reproduce.read_evidence(before), tool="0.0.9")
        with pytest.raises(
            RefusedError, match=r"was built by rdma-images 0\.0\.9(?s:.*)pip install rdma-images==0\.0\.9"
        ):
            reproduce.require_same_origin(before, evidence)

    def test_an_engine_that_cannot_write_to_a_folder_is_refused(
        self, repository: Repository, image: Image, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = self.published(repository, image, "a" * 40)
        monkeypatch.setattr(labels, "project_revision", lambda: labels.Revision("a" * 40, 0, None))
        with pytest.raises(RefusedError, match="no containerd store"):
            reproduce.reproduce(
                before, reproduce.read_evidence(before), project.load(), replace(ENGINE, store="classic")
            )


def test_the_answer_names_differences_and_what_is_not_locked(capsys: pytest.CaptureFixture[str]) -> None:
    digest = hashlib.sha256(b"").hexdigest()
    row = Difference("layer 2 of 2", "etc/\x1b[31mx", "content", digest, digest[::-1])
    outcome = Reproduction("host/a@sha256:1", "sha256:2", "c" * 40, (row,) * 51, ("debian-archive",), 3, ("apex",))
    show(publication_table.reproduction_text(outcome))
    text = capsys.readouterr().out
    assert text.startswith("DIFFERS  host/a@sha256:1\n")
    assert r"etc/\x1b[31mx" in text
    assert f"{digest[:12]}…" in text
    assert "debian-archive" in text
    assert "3 layers of wheels were made on this machine before" in text
    assert "compiled on this machine before, and not again: apex" in text
    assert "does not say which version" in text
    assert "and 1 more differences: --json has all" in text
    body = json.loads(publication_table.reproduction_json(outcome))
    assert (body["equal"], len(body["differences"])) == (False, 51)
    assert replace(outcome, rebuilt="sha256:1", differences=()).is_equal
