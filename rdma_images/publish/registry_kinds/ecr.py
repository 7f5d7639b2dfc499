"""Amazon ECR: repositories must exist before a push; tokens last 12 hours."""

import base64
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import boto3
import botocore.exceptions

from rdma_images.publish import tags
from rdma_images.publish.registry_kinds import join_path
from rdma_images.registry import registry_errors
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import Ecr

_EXCLUDING = "IMMUTABLE_WITH_EXCLUSION"
_MAX_FILTERS = 5  # docs.aws.amazon.com/AmazonECR/latest/userguide/image-tag-mutability.html


class EcrKind:
    """One account and region of ECR."""

    def __init__(self, registry: Ecr) -> None:
        self._registry = registry
        self._where = f"ECR {registry.account} {registry.region}"
        self.tls: bool | None = None

    @cached_property
    def _client(self) -> Any:
        with aws_errors(self._where, "a session"):
            session = boto3.Session(profile_name=self._registry.profile, region_name=self._registry.region)
            return session.client("ecr")

    @cached_property
    def host(self) -> str:
        """Return the host of registries.yaml, or the one that AWS states (.com.cn in China)."""
        if self._registry.host:
            return self._registry.host
        authorization = self._authorization()
        return str(authorization["proxyEndpoint"]).partition("//")[2]

    def login(self) -> Login | None:
        """Return a fresh token of GetAuthorizationToken."""
        return decode_login(self._authorization())

    def _authorization(self) -> dict[str, Any]:
        with aws_errors(self._where, "GetAuthorizationToken"):
            answer = self._client.get_authorization_token(registryIds=[self._registry.account])
        authorization: dict[str, Any] = answer["authorizationData"][0]
        return authorization

    def repository(self, target: str) -> str:
        """Return prefix/target."""
        return join_path(self._registry.prefix, target)

    def ensure_repository(self, name: str, moving: tuple[str, ...] = (), /) -> tuple[str, ...]:
        """Create a missing repository; return what was created.

        An existing repository keeps its settings, which may be deliberate; only the list of movable tags grows
        where registries.yaml wants immutability and the repository already leaves some tags out of it. Raises
        ConflictError where that list is full.
        """
        repository = self._find(name)
        if repository is not None:
            return self._keep_moving(name, repository, moving)
        with aws_errors(self._where, f"CreateRepository {name}"):
            try:
                self._client.create_repository(**self._settings(name, moving))
            except self._client.exceptions.RepositoryAlreadyExistsException:  # another runner was faster
                return ()
        return (f"repository {name}",)

    def _find(self, name: str) -> dict[str, Any] | None:
        with aws_errors(self._where, f"DescribeRepositories {name}"):
            try:
                response = self._client.describe_repositories(registryId=self._registry.account, repositoryNames=[name])
            except self._client.exceptions.RepositoryNotFoundException:
                return None
        repository: dict[str, Any] = response["repositories"][0]
        return repository

    def _keep_moving(self, name: str, repository: dict[str, Any], moving: tuple[str, ...]) -> tuple[str, ...]:
        """Let tags of this publication move in an immutable repository; describe it."""
        if not self._registry.immutable or repository.get("imageTagMutability") != _EXCLUDING:
            return ()
        filters = list(repository.get("imageTagMutabilityExclusionFilters", ()))
        patterns = [pattern["filter"] for pattern in filters]
        missing_patterns = [
            tag for tag in (tags.ATTACHMENTS, *moving) if not any(fnmatchcase(tag, pattern) for pattern in patterns)
        ]
        if not missing_patterns:
            return ()
        if len(patterns) + len(missing_patterns) > _MAX_FILTERS:
            raise registry_errors.ConflictError(
                f"{name} leaves {', '.join(patterns)} out of its immutability, of which ECR takes {_MAX_FILTERS}, and "
                f"{' and '.join(missing_patterns)} has to move too\n"
                "take one out with `aws ecr put-image-tag-mutability`"
            )
        with aws_errors(self._where, f"PutImageTagMutability {name}"):
            self._client.put_image_tag_mutability(
                registryId=self._registry.account,
                repositoryName=name,
                imageTagMutability=_EXCLUDING,
                imageTagMutabilityExclusionFilters=[*filters, *_filters(missing_patterns)],
            )
        return (f"{' and '.join(missing_patterns)} may move",)

    def _settings(self, name: str, moving: tuple[str, ...]) -> dict[str, Any]:
        """Return the settings of a new repository, in which the tags that match `moving` may move."""
        settings: dict[str, Any] = {
            "registryId": self._registry.account,
            "repositoryName": name,
            "imageTagMutability": "MUTABLE",
        }
        if self._registry.immutable:
            # Short tags move and attachments' tags are rewritten: an immutable repository has to leave them out.
            settings["imageTagMutability"] = _EXCLUDING
            settings["imageTagMutabilityExclusionFilters"] = _filters((tags.ATTACHMENTS, *moving))
        return settings


def _filters(patterns: Iterable[str]) -> list[dict[str, str]]:
    """Return ECR's form of the tags that may move."""
    return [{"filterType": "WILDCARD", "filter": pattern} for pattern in patterns]


@contextmanager
def aws_errors(service: str, action: str) -> Iterator[None]:
    """Raise boto3's errors in the block as RegistryErrors about `action` of `service`."""
    try:
        yield
    except botocore.exceptions.ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        kind = (
            registry_errors.BusyError
            if "Throttl" in code or code.endswith("ServerException")
            else registry_errors.RegistryError
        )
        raise kind(
            f"AWS refuses {action} in {service}: {code}: {message}\n"
            "correct registries.yaml, log in again, or ask for that right"
        ) from None
    except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError):
        raise registry_errors.UnauthorizedError(
            f"there are no AWS credentials for {service}\nset a profile, AWS_ACCESS_KEY_ID, or a role"
        ) from None
    except (botocore.exceptions.EndpointConnectionError, botocore.exceptions.HTTPClientError) as error:
        raise registry_errors.UnreachableError(
            f"AWS is unreachable for {service}: {error}\ncheck region, endpoint and proxy"
        ) from None
    except botocore.exceptions.BotoCoreError as error:
        raise registry_errors.RegistryError(
            f"{service}: {error}\ncheck the AWS configuration of this machine"
        ) from None


def decode_login(authorization: dict[str, Any]) -> Login:
    """Return the login in ECR's token, the base64 of "AWS:password"."""
    username, _, password = base64.b64decode(authorization["authorizationToken"]).decode().partition(":")
    return Login(username=username, password=password)
