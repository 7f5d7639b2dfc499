"""Amazon ECR Public: its interface is in us-east-1 only, and every repository lies under the registry's alias."""

from functools import cached_property
from typing import Any

import boto3

from rdma_images.publish.kinds.aws import aws_errors, login_of
from rdma_images.publish.kinds.base import Prepared, join_path
from rdma_images.registry import faults
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import EcrPublic

_WHERE = "ECR Public"


class EcrPublicKind:
    """The public registry of the account that the credentials belong to."""

    host = "public.ecr.aws"
    tls: bool | None = None

    def __init__(self, registry: EcrPublic) -> None:
        self._registry = registry

    @cached_property
    def _client(self) -> Any:
        with aws_errors(_WHERE, "a session"):
            session = boto3.Session(profile_name=self._registry.profile, region_name="us-east-1")
            return session.client("ecr-public")

    @cached_property
    def _alias(self) -> str:
        with aws_errors(_WHERE, "DescribeRegistries"):
            registries = self._client.describe_registries()["registries"]
        if not registries:
            raise faults.MissingError("this AWS account has no public registry yet\ncreate one in ECR's console")
        return str(registries[0]["registryUri"]).rpartition("/")[2]

    def login(self) -> Login | None:
        """Return a fresh token; here authorizationData is one object, not a list of them."""
        with aws_errors(_WHERE, "GetAuthorizationToken"):
            return login_of(self._client.get_authorization_token()["authorizationData"])

    def repository(self, target: str) -> str:
        """Return alias/prefix/target."""
        return join_path(self._alias, self._registry.prefix, target)

    def prepare(self, name: str, _moving: tuple[str, ...] = (), /) -> Prepared:
        """Create the repository where it is missing; its name here is without the alias."""
        bare = name.partition("/")[2]
        with aws_errors(_WHERE, f"CreateRepository {bare}"):
            try:
                self._client.describe_repositories(repositoryNames=[bare])
                return Prepared(name)
            except self._client.exceptions.RepositoryNotFoundException:
                pass
            try:
                self._client.create_repository(repositoryName=bare)
            except self._client.exceptions.RepositoryAlreadyExistsException:  # another runner was faster
                return Prepared(name)
        return Prepared(name, (f"public repository {bare}",))
