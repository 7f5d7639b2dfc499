"""ECR with moto as its control plane and a real registry as its data plane."""

import base64

import bcrypt
import boto3
import pytest
from moto.server import ThreadedMotoServer
from publish_parts import SUITE, Registry, build_small, green, planned, registry_program, write_steps

from rdma_images import engine as engines
from rdma_images import matrix, paths
from rdma_images.publish import publish
from rdma_images.publish.progress import Lines
from rdma_images.publish.push import Pace
from rdma_images.publish.registries import Ecr
from rdma_images.publish.send import Means

pytestmark = pytest.mark.e2e
ACCOUNT = "123456789012"


@pytest.fixture
def aws(monkeypatch):
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_ECR", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    yield boto3.client("ecr", region_name="us-east-1")
    server.stop()


def test_an_image_goes_to_ecr_whose_repository_did_not_exist(aws, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    engine = engines.ensure(print)
    small = build_small(engine, tmp_path / "context", "ecr")
    registry = Registry(registry_program(), tmp_path / "registry")
    token = aws.get_authorization_token(registryIds=[ACCOUNT])["authorizationData"][0]["authorizationToken"]
    password = base64.b64decode(token).partition(b":")[2]
    hashed = bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()
    (registry.folder / "htpasswd").write_text(f"AWS:{hashed}\n")
    entry = Ecr(kind="ecr", account=ACCOUNT, region="us-east-1", prefix="training", host=registry.host, immutable=True)
    image = planned()
    write_steps(image, *green(image, small))
    found = publish.items([image], [image], matrix.load(), SUITE)
    said: list[str] = []
    means = Means(engine=lambda: engine, watcher=Lines(said.append), pace=Pace(2, 0.1))
    registry.start()
    try:
        (first,) = publish.publish(found, {"ecr": entry}, means)
        (second,) = publish.publish(found, {"ecr": entry}, means)
    finally:
        registry.kill()
        engines.client(engine).images.remove(small.ref, force=True)
    assert first.error == ""
    assert "repository training/efa-pytorch" in first.place.made
    assert second.place.result == "there"
    (repository,) = aws.describe_repositories(repositoryNames=["training/efa-pytorch"])["repositories"]
    assert repository["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    assert not any(password.decode() in line for line in said)
