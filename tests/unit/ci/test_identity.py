"""A configured role finds a fresh identity token while a command runs, and none after."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images.ci import identity
from rdma_images.core.errors import RdmaImagesError, RefusedError
from tests.support.loopback import Answer, Site, serve

ROLE = {"ALIBABA_CLOUD_ROLE_ARN": "acs:ram::1:role/ci", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": "acs:ram::1:oidc/github"}
ASKED = "/word?v=2&audience=sts.aliyuncs.com"


@pytest.fixture
def github() -> Iterator[Site]:
    with serve() as site:
        site.answers[ASKED] = word("one")
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


def test_the_token_is_in_a_file_and_nothing_stays(github: Site, tmp_path: Path) -> None:
    answer_path = tmp_path / "answer.json"
    assert identity.run_with_token(python(TELL, answer_path), environ(github, RUNNER_TEMP=str(tmp_path), **ROLE)) == 3
    assert json.loads(answer_path.read_text())["files"] == {identity.TOKEN_FILE: ["one", "0o600"]}
    assert list(tmp_path.iterdir()) == [answer_path]
    assert [(request.path, request.headers["authorization"]) for request in github.requests] == [
        (ASKED, "Bearer s3cret")
    ]


def test_a_role_that_is_not_configured_is_not_asked_for(github: Site, tmp_path: Path) -> None:
    answer_path = tmp_path / "answer.json"
    assert identity.run_with_token(python(TELL, answer_path), environ(github, **dict.fromkeys(ROLE, ""))) == 3
    data = json.loads(answer_path.read_text())
    assert data["files"] == {}
    assert not set(ROLE) & set(data["environ"]), "an empty one is a setting to the SDK"
    assert github.requests == []


def test_the_sdk_takes_what_is_there(github: Site) -> None:
    chain = """
from alibabacloud_credentials.utils import auth_util
assert auth_util.enable_oidc_credential
assert open(auth_util.environment_oidc_token_file).read() == "one"
"""
    assert identity.run_with_token(python(chain), environ(github, **ROLE)) == 0


WAIT = """
import os, pathlib, sys, time
file, end = pathlib.Path(os.environ["ALIBABA_CLOUD_OIDC_TOKEN_FILE"]), time.monotonic() + 10
while file.read_text() != "third":
    assert time.monotonic() < end, file.read_text()
    time.sleep(0.01)
"""


def test_the_word_is_asked_for_again_also_after_a_failure(github: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "RETRY_AFTER", 0.01)
    github.answers[ASKED] = [word("first"), word("second"), Answer(status=503), word("third")]
    assert identity.run_with_token(python(WAIT), environ(github, **ROLE), fresh=0.05) == 0


def test_half_a_role_is_refused(github: Site) -> None:
    with pytest.raises(RefusedError, match="ALIBABA_CLOUD_OIDC_PROVIDER_ARN is missing"):
        identity.run_with_token(["false"], environ(github, ALIBABA_CLOUD_ROLE_ARN="x"))


def test_a_job_that_may_not_ask_is_told_how() -> None:
    with pytest.raises(RefusedError, match="id-token: write"):
        identity.run_with_token(["false"], {"PATH": os.environ["PATH"], **ROLE})


@pytest.mark.parametrize("answer", [Answer(status=403), Answer(b"<html>"), Answer(b"[]"), Answer(b"{}")])
def test_no_answer_is_a_sentence_without_the_secret(github: Site, answer: Answer) -> None:
    github.answers[ASKED] = answer
    with pytest.raises(RdmaImagesError, match="gives no identity token") as caught:
        identity.run_with_token(["false"], environ(github, **ROLE))
    assert "s3cret" not in str(caught.value)
