"""Amazon ECR Public: its interface is in us-east-1 only, and every repository lies under the registry's alias."""

from functools import cached_property
from typing import Any

import boto3

from rdma_images.publish import faults
from rdma_images.publish.kinds.aws import login_of, sentences
from rdma_images.publish.kinds.base import Prepared, joined
from rdma_images.publish.registries import EcrPublic
from rdma_images.publish.secrets import Login

_WHERE = "ECR Public"


class EcrPublicKind:
    """The public registry of the account that the credentials belong to."""

    host = "public.ecr.aws"
    tls: bool | None = None

    def __init__(self, registry: EcrPublic) -> None:
        self._registry = registry

    @cached_property
    def _client(self) -> Any:
        with sentences(_WHERE, "a session"):
            session = boto3.Session(profile_name=self._registry.profile, region_name="us-east-1")
            return session.client("ecr-public")

    @cached_property
    def _alias(self) -> str:
        with sentences(_WHERE, "DescribeRegistries"):
            found = self._client.describe_registries()["registries"]
        if not found:
            raise faults.MissingError("this AWS account has no public registry yet: create one in ECR's console")
        return str(found[0]["registryUri"]).rpartition("/")[2]

    def login(self) -> Login | None:
        """A fresh token; here authorizationData is one object, not a list of them."""
        with sentences(_WHERE, "GetAuthorizationToken"):
            return login_of(self._client.get_authorization_token()["authorizationData"])

    def repository(self, target: str) -> str:
        """alias/prefix/target."""
        return joined(self._alias, self._registry.prefix, target)

    def prepare(self, name: str, _moving: tuple[str, ...] = (), /) -> Prepared:
        """The repository, created where it is missing; its name here is without the alias."""
        bare = name.partition("/")[2]
        with sentences(_WHERE, f"CreateRepository {bare}"):
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
