"""The public files that the facts cite."""

import re
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.facts import public


def test_public_files_are_listed_with_the_rows_that_cite_them() -> None:
    files_by_place = {(file.facts, file.source, file.path): file for file in public.files()}
    tuner = files_by_place["environment.yaml", "tuner", "src/tuner/nccl_ofi_tuner.cpp"]
    assert tuner.address == "https://github.com/aws/aws-ofi-nccl/blob/2daf7d30/src/tuner/nccl_ofi_tuner.cpp"
    assert tuner.rows == ("variables.protocol", "variables.algorithm")
    versions = [file.commit for file in public.files() if file.source == "nccl-plugins"]
    assert versions == ["72d24320", "3ea7eedf"]


def test_every_facts_file_that_names_a_commit_is_listed() -> None:
    naming = {path.name for path in paths.FACTS.glob("*.yaml") if re.search(r" @[0-9a-f]{7,40}\b", path.read_text())}
    assert {file.facts for file in public.files()} == naming
    assert all(file.rows for file in public.files())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"null\n", "must be a mapping"),
        (b"sources: [\n", "not valid YAML"),
        (b"quellen: {}\n", "the file has no 'sources'"),
        (b"sources: {}\n# \xff\n", "not UTF-8"),
    ],
)
def test_public_files_of_broken_facts_are_refused_with_their_line(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "gpus.yaml").write_bytes(content)
    with pytest.raises(RefusedError, match=rf"gpus\.yaml:\d: .*{sentence}"):
        public.files(tmp_path)
