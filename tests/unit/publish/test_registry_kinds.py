"""Kinds of registries against control planes: moto, AWS's shapes, recorded doubles."""

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from alibabacloud_credentials.utils import auth_util
from botocore.stub import Stubber
from moto.server import ThreadedMotoServer

from rdma_images.core.errors import RefusedError
from rdma_images.publish.registry_kinds import RegistryKind, open_kind
from rdma_images.registry import registry_errors
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import AcrAliyun, Ecr, LoginReferences, Oci
from tests.support.publish_doubles import Alibaba, served

if TYPE_CHECKING:
    from mypy_boto3_ecr import ECRClient
    from mypy_boto3_ecr.type_defs import ImageTagMutabilityExclusionFilterTypeDef

ECR = {"kind": "ecr", "account": "123456789012", "region": "us-east-1", "prefix": "training"}
ACR = {"kind": "acr-aliyun", "region": "cn-shanghai", "namespace": "ai", "instance": "cri-1", "host": "x.example"}


def ecr(**more: object) -> Ecr:
    return Ecr.model_validate({**ECR, **more})


def acr(**more: object) -> AcrAliyun:
    return AcrAliyun.model_validate({**ACR, **more})


def registry_login(kind: RegistryKind) -> Login:
    login = kind.login()
    assert login
    return login


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(moto: str, monkeypatch: pytest.MonkeyPatch) -> Iterator["ECRClient"]:
    monkeypatch.setenv("AWS_ENDPOINT_URL_ECR", moto)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    client = boto3.client("ecr", region_name="us-east-1")
    yield client
    for repository in client.describe_repositories()["repositories"]:
        client.delete_repository(repositoryName=repository["repositoryName"], force=True)


class TestEcr:
    def test_a_repository_is_made_as_configured_and_left_alone_afterwards(self, aws: "ECRClient") -> None:
        kind = open_kind(ecr(immutable=True))
        name = kind.repository("efa-pytorch")
        created = kind.ensure_repository(name, ("2.15", "latest"))
        assert name == "training/efa-pytorch"
        assert created == ("repository training/efa-pytorch",)
        (repository,) = aws.describe_repositories(repositoryNames=[name])["repositories"]
        assert repository["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
        filters = [tag_filter["filter"] for tag_filter in repository["imageTagMutabilityExclusionFilters"]]
        assert filters == ["sha256-*", "2.15", "latest"]
        assert kind.ensure_repository(name, ("2.15", "latest")) == ()

    def test_a_new_short_tag_may_move_too(self, aws: "ECRClient") -> None:
        kind = open_kind(ecr(immutable=True))
        kind.ensure_repository("training/x", ("2.15", "latest"))
        assert kind.ensure_repository("training/x", ("2.16", "latest")) == ("2.16 may move",)
        (repository,) = aws.describe_repositories(repositoryNames=["training/x"])["repositories"]
        filters = [tag_filter["filter"] for tag_filter in repository["imageTagMutabilityExclusionFilters"]]
        assert filters == ["sha256-*", "2.15", "latest", "2.16"]

    def test_a_filter_of_somebody_else_stays_and_a_full_list_is_reported(self, aws: "ECRClient") -> None:
        theirs = ["sha256-*", "latest", "2.1*", "nightly-*", "team-*"]
        filters: list[ImageTagMutabilityExclusionFilterTypeDef] = [
            {"filterType": "WILDCARD", "filter": pattern} for pattern in theirs
        ]
        aws.create_repository(
            repositoryName="training/x",
            imageTagMutability="IMMUTABLE_WITH_EXCLUSION",
            imageTagMutabilityExclusionFilters=filters,
        )
        kind = open_kind(ecr(immutable=True))
        assert kind.ensure_repository("training/x", ("2.16", "latest")) == (), "2.1* has it"
        with pytest.raises(
            registry_errors.ConflictError, match=r"nightly-\*, team-\* out of its immutability.*3\.0 has to move too"
        ):
            kind.ensure_repository("training/x", ("3.0", "latest"))
        (repository,) = aws.describe_repositories(repositoryNames=["training/x"])["repositories"]
        assert repository["imageTagMutabilityExclusionFilters"] == filters

    def test_somebody_elses_repository_keeps_its_settings(self, aws: "ECRClient") -> None:
        aws.create_repository(repositoryName="training/x", imageTagMutability="IMMUTABLE")
        assert open_kind(ecr(immutable=True)).ensure_repository("training/x", ("latest",)) == ()
        (repository,) = aws.describe_repositories(repositoryNames=["training/x"])["repositories"]
        assert repository["imageTagMutability"] == "IMMUTABLE"

    @pytest.mark.usefixtures("aws")
    def test_the_login_is_a_fresh_token_and_the_host_is_reported_by_aws(self) -> None:
        kind = open_kind(ecr())
        assert registry_login(kind).username == "AWS"
        assert kind.host == "123456789012.dkr.ecr.us-east-1.amazonaws.com"
        assert open_kind(ecr(host="vpce.example")).host == "vpce.example"

    def test_no_credentials_and_no_network_are_sentences(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        with pytest.raises(registry_errors.UnauthorizedError, match="no AWS credentials"):
            open_kind(ecr()).login()
        with pytest.raises(registry_errors.RegistryError, match="profile"):
            open_kind(ecr(profile="nobody")).login()

    def test_denied_creation_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kind = open_kind(ecr())
        client = boto3.client("ecr", "us-east-1", aws_access_key_id="t", aws_secret_access_key="t")
        monkeypatch.setattr(kind, "_client", client)
        with Stubber(client) as stub:
            stub.add_client_error("describe_repositories", "RepositoryNotFoundException")
            stub.add_client_error(
                "create_repository", "AccessDeniedException", "not authorized to ecr:CreateRepository"
            )
            with pytest.raises(registry_errors.RegistryError, match="refuses CreateRepository training/x"):
                kind.ensure_repository("training/x")


class TestAlibaba:
    @pytest.fixture(autouse=True)
    def chain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The SDK reads the environment once, when it is imported.
        monkeypatch.setattr(auth_util, "environment_access_key_id", "id")
        monkeypatch.setattr(auth_util, "environment_access_key_secret", "key")

    def test_a_missing_repository_is_made(self) -> None:
        api = Alibaba(namespaces=["ai"])
        with served(api.handler()) as host:
            kind = open_kind(acr(endpoint=f"http://{host}"))
            assert kind.ensure_repository("ai/efa-pytorch") == ("repository ai/efa-pytorch",)
            assert kind.ensure_repository("ai/efa-pytorch") == ()
        assert [action for action, _ in api.requests] == ["GetRepository", "CreateRepository", "GetRepository"]
        fields = {"InstanceId": "cri-1", "RepoNamespaceName": "ai", "RepoName": "efa-pytorch", "RepoType": "PRIVATE"}
        assert fields.items() <= api.requests[1][1].items()

    def test_the_login_is_for_an_hour_and_its_password_may_have_a_colon(self) -> None:
        api = Alibaba()
        with served(api.handler()) as host:
            login = registry_login(open_kind(acr(endpoint=f"http://{host}")))
        assert (login.username, login.password) == ("cr_temp_user", "pass:word")
        assert api.requests == [("GetAuthorizationToken", {"InstanceId": "cri-1", "ExpiresInHours": "1"})]

    def test_a_missing_namespace_and_a_denied_action_are_reported(self) -> None:
        for api, words in (
            (Alibaba(), r"NAMESPACE_NOT_EXIST.*\ncorrect instance"),
            (Alibaba(namespaces=["ai"], denied=["CreateRepository"]), "refuses CreateRepository"),
        ):
            with served(api.handler()) as host, pytest.raises(registry_errors.RegistryError, match=words):
                open_kind(acr(endpoint=f"http://{host}")).ensure_repository("ai/efa-pytorch")

    def test_a_control_plane_that_is_down(self) -> None:
        with served(Alibaba().handler()) as host:
            pass
        kind = open_kind(acr(endpoint=f"http://{host}"))
        with pytest.raises(registry_errors.RegistryError) as caught:
            kind.login()
        assert caught.value.temporary

    def test_no_credentials_are_reported_and_not_tried_again(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(auth_util, "environment_access_key_id", None)
        monkeypatch.setattr(auth_util, "environment_ecs_metadata_disabled", "true")
        monkeypatch.setenv("HOME", str(tmp_path))
        kind = open_kind(acr(endpoint="http://127.0.0.1:9"))
        with pytest.raises(registry_errors.UnauthorizedError, match="no Alibaba Cloud credentials") as caught:
            kind.login()
        assert not caught.value.temporary


def test_a_login_is_read_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("U", "me")
    monkeypatch.setenv("P", "secret")
    kind = open_kind(Oci(kind="oci", host="h.example", credentials=LoginReferences(username="env:U", password="env:P")))
    assert registry_login(kind) == Login("me", "secret")


class TestDockerConfig:
    @pytest.fixture
    def config(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return tmp_path

    def test_a_credential_helper_is_asked(self, config: Path) -> None:
        helper = config / "docker-credential-vault"
        answer = json.dumps({"ServerURL": "h.example", "Username": "ci", "Secret": "from the helper"})
        helper.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{answer}'\n")
        helper.chmod(0o755)
        (config / "config.json").write_text(json.dumps({"credHelpers": {"h.example": "vault"}}))
        assert registry_login(open_kind(Oci(kind="oci", host="h.example"))).password == "from the helper"

    def test_a_plain_login_and_none(self, config: Path) -> None:
        pair = base64.b64encode(b"ci:pw").decode()
        (config / "config.json").write_text(json.dumps({"auths": {"h.example": {"auth": pair}}}))
        assert registry_login(open_kind(Oci(kind="oci", host="h.example"))).password == "pw"
        assert open_kind(Oci(kind="oci", host="other.example")).login() is None
        assert open_kind(Oci(kind="oci", host="h.example", credentials="none")).login() is None

    @pytest.mark.filterwarnings("ignore:docker-credential-nowhere")
    def test_a_helper_that_is_not_there_is_reported(self, config: Path) -> None:
        (config / "config.json").write_text(json.dumps({"credHelpers": {"h.example": "nowhere"}}))
        with pytest.raises(RefusedError, match=r"no usable credentials for h\.example"):
            open_kind(Oci(kind="oci", host="h.example")).login()


def test_a_missing_sdk_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "rdma_images.publish.registry_kinds.ecr", raising=False)
    with pytest.raises(RefusedError, match=r"pip install 'rdma-images\[ecr\]'"):
        open_kind(ecr())
