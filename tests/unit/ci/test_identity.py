"""A configured cloud finds a fresh identity token while a command runs, and none after."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.ci import identity
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError, RefusedError
from tests.support.loopback import Answer, Site, serve

ALIBABA = {"ALIBABA_CLOUD_ROLE_ARN": "acs:ram::1:role/ci", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": "acs:ram::1:oidc/github"}
AZURE = {"AZURE_CLIENT_ID": "00000000-0000-0000-0000-000000000001", "AZURE_TENANT_ID": "t"}
TO_ALIBABA, TO_AZURE = "/word?v=2&audience=sts.aliyuncs.com", "/word?v=2&audience=api%3A%2F%2FAzureADTokenExchange"


@pytest.fixture
def github() -> Iterator[Site]:
    with serve() as site:
        site.answers |= {TO_ALIBABA: word("one"), TO_AZURE: word("two")}
        yield site


def word(text: str) -> Answer:
    return Answer(json.dumps({"value": text}).encode())


def environ(site: Site, **more: str) -> dict[str, str]:
    asking = {identity.URL: f"{site.address}/word?v=2", identity.TOKEN: "s3cret"}
    return {"PATH": os.environ["PATH"]} | asking | more


def python(code: str, *arguments: Path) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


TELL = """
import json, os, pathlib, sys
files = {name: pathlib.Path(os.environ[name]) for name in os.environ if name.endswith("TOKEN_FILE")}
token_files = {name: [file.read_text(), oct(file.stat().st_mode & 0o777)] for name, file in files.items()}
pathlib.Path(sys.argv[1]).write_text(json.dumps({"files": token_files, "environ": dict(os.environ)}))
sys.exit(3)
"""


def test_each_cloud_finds_its_own_and_nothing_stays(github: Site, tmp_path: Path) -> None:
    answer_path = tmp_path / "answer.json"
    assert (
        identity.run_with_tokens(
            python(TELL, answer_path), environ(github, RUNNER_TEMP=str(tmp_path), **ALIBABA, **AZURE)
        )
        == 3
    )
    assert json.loads(answer_path.read_text())["files"] == {
        "ALIBABA_CLOUD_OIDC_TOKEN_FILE": ["one", "0o600"],
        "AZURE_FEDERATED_TOKEN_FILE": ["two", "0o600"],
    }
    assert list(tmp_path.iterdir()) == [answer_path]
    assert {request.headers["authorization"] for request in github.requests} == {"Bearer s3cret"}


def test_a_cloud_that_is_not_configured_is_not_asked_for(github: Site, tmp_path: Path) -> None:
    answer_path = tmp_path / "answer.json"
    empty = dict.fromkeys(ALIBABA, "")
    assert identity.run_with_tokens(python(TELL, answer_path), environ(github, **empty, **AZURE)) == 3
    data = json.loads(answer_path.read_text())
    assert list(data["files"]) == ["AZURE_FEDERATED_TOKEN_FILE"]
    assert not set(ALIBABA) & set(data["environ"]), "an empty one is a setting to the SDK"
    assert [request.path for request in github.requests] == [TO_AZURE]


def test_without_any_cloud_the_command_just_runs(tmp_path: Path) -> None:
    answer_path = tmp_path / "answer.json"
    assert identity.run_with_tokens(python(TELL, answer_path), {"PATH": os.environ["PATH"]}) == 3
    assert json.loads(answer_path.read_text())["files"] == {}


def test_the_sdks_take_what_is_there(github: Site) -> None:
    chain = """
from alibabacloud_credentials.utils import auth_util
assert auth_util.enable_oidc_credential
assert open(auth_util.environment_oidc_token_file).read() == "one"
from azure.identity import WorkloadIdentityCredential
assert WorkloadIdentityCredential()._get_service_account_token() == "two"
"""
    assert identity.run_with_tokens(python(chain), environ(github, **ALIBABA, **AZURE)) == 0


WAIT = """
import os, pathlib, sys, time
file, end = pathlib.Path(os.environ["AZURE_FEDERATED_TOKEN_FILE"]), time.monotonic() + 10
while file.read_text() != "third":
    assert time.monotonic() < end, file.read_text()
    time.sleep(0.01)
"""


def test_the_word_is_asked_for_again_also_after_a_failure(github: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "RETRY_AFTER", 0.01)
    github.answers[TO_AZURE] = [word("first"), word("second"), Answer(status=503), word("third")]
    assert identity.run_with_tokens(python(WAIT), environ(github, **AZURE), fresh=0.05) == 0


def test_half_a_role_is_refused(github: Site) -> None:
    with pytest.raises(RefusedError, match="AZURE_TENANT_ID is missing"):
        identity.run_with_tokens(["false"], environ(github, AZURE_CLIENT_ID="x"))


def test_a_job_that_may_not_ask_is_told_how() -> None:
    with pytest.raises(RefusedError, match="id-token: write"):
        identity.run_with_tokens(["false"], {"PATH": os.environ["PATH"], **AZURE})


@pytest.mark.parametrize("answer", [Answer(status=403), Answer(b"<html>"), Answer(b"[]"), Answer(b"{}")])
def test_no_answer_is_a_sentence_without_the_secret(github: Site, answer: Answer) -> None:
    github.answers[TO_AZURE] = answer
    with pytest.raises(RdmaImagesError, match="gives no identity token") as caught:
        identity.run_with_tokens(["false"], environ(github, **AZURE))
    assert "s3cret" not in str(caught.value)


def test_the_command_line() -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "rdma_images.ci.identity", *python("import sys; sys.exit(7)")],
        cwd=paths.PROJECT,
        env={"PATH": os.environ["PATH"]},
    )
    assert completed.returncode == 7
