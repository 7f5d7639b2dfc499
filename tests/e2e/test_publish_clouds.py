"""ECR with moto as its control plane and a real registry as its data plane."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import bcrypt
import boto3
import pytest
from alibabacloud_credentials.utils import auth_util
from moto.server import ThreadedMotoServer

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.plan import matrix
from rdma_images.publish import publish_images
from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.push import PushPolicy
from rdma_images.registry.registries import AcrAliyun, Ecr
from tests.e2e import publish_parts
from tests.e2e.publish_parts import SUITE, Registry, build_small, green, placed, registry_program, write_steps
from tests.support.publish_doubles import Alibaba, served

if TYPE_CHECKING:
    from mypy_boto3_ecr import ECRClient

pytestmark = [pytest.mark.e2e, pytest.mark.part("publish")]
ACCOUNT = "123456789012"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator["ECRClient"]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_ECR", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    yield boto3.client("ecr", region_name="us-east-1")
    server.stop()


@pytest.fixture
def item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApprovedImage]:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    engine = engines.ensure(print)
    small = build_small(engine, tmp_path / "context", "clouds")
    image = publish_parts.planned_image()
    write_steps(image, *green(image, small))
    (approved,) = publish_images.approved_images([image], [image], matrix.load(), SUITE)
    yield approved
    engines.client(engine).images.remove(small.ref, force=True)


def registry_for(tmp_path: Path, user: str, password: bytes) -> Registry:
    registry = Registry(registry_program(), tmp_path / "registry")
    hashed = bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()
    (registry.folder / "htpasswd").write_text(f"{user}:{hashed}\n")
    return registry.start()


def twice(item: ApprovedImage, entry: Ecr | AcrAliyun) -> tuple[publish_images.PublishResult, list[str]]:
    """Return the outcomes of two runs, and all that was said."""
    lines: list[str] = []
    engine = engines.ensure(print)
    publisher = Publisher(engine=lambda: engine, progress=lines.append, push_policy=PushPolicy(2, 0.1))
    (first,) = publish_images.publish([item], {"cloud": entry}, publisher)
    (second,) = publish_images.publish([item], {"cloud": entry}, publisher)
    assert first.error == second.error == ""
    assert placed(second).result == "present"
    return first, lines


def test_an_image_goes_to_ecr_whose_repository_did_not_exist(
    aws: "ECRClient", item: ApprovedImage, tmp_path: Path
) -> None:
    token = aws.get_authorization_token(registryIds=[ACCOUNT])["authorizationData"][0]["authorizationToken"]
    password = base64.b64decode(token).partition(b":")[2]
    registry = registry_for(tmp_path, "AWS", password)
    entry = Ecr(kind="ecr", account=ACCOUNT, region="us-east-1", prefix="training", host=registry.host, immutable=True)
    try:
        first, lines = twice(item, entry)
    finally:
        registry.kill()
    assert "repository training/efa-pytorch" in placed(first).created
    (repository,) = aws.describe_repositories(repositoryNames=["training/efa-pytorch"])["repositories"]
    assert repository["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    assert not any(password.decode() in line for line in lines)


def test_an_image_goes_to_alibaba_with_a_token_that_has_a_colon(
    item: ApprovedImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The SDK reads the environment once, when it is imported.
    monkeypatch.setattr(auth_util, "environment_access_key_id", "id")
    monkeypatch.setattr(auth_util, "environment_access_key_secret", "key")
    registry = registry_for(tmp_path, "cr_temp_user", b"pass:word")
    api = Alibaba(namespaces=["ai"])
    try:
        with served(api.handler()) as host:
            entry = AcrAliyun(
                kind="acr-aliyun",
                region="cn-shanghai",
                instance="cri-1",
                namespace="ai",
                host=registry.host,
                endpoint=f"http://{host}",
            )
            first, lines = twice(item, entry)
    finally:
        registry.kill()
    assert placed(first).created == ("repository ai/efa-pytorch",)
    assert registry.storage.joinpath("docker/registry/v2/repositories/ai/efa-pytorch/_manifests/tags/latest").is_dir()
    assert not any("pass:word" in line for line in lines)
