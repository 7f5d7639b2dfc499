"""Alibaba Cloud Container Registry, Enterprise: tokens for an hour, and repositories made by its API."""

import re
from functools import cached_property
from typing import Any

from rdma_images.publish.registry_kinds import join_path
from rdma_images.registry import registry_errors
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import AcrAliyun

NETWORK = "check region, endpoint and proxy"
_HOURS = 1  # the shortest life that GetAuthorizationToken gives


class AcrAliyunKind:
    """One instance of ACR."""

    tls: bool | None = None

    def __init__(self, registry: AcrAliyun) -> None:
        # Here, so that a missing SDK is reported before anything is done.
        from alibabacloud_cr20181201 import models

        self._models: Any = models
        self._registry = registry
        self.host = registry.host

    @cached_property
    def _client(self) -> Any:
        from alibabacloud_cr20181201.client import Client
        from alibabacloud_credentials.client import Client as Chain
        from alibabacloud_tea_openapi.models import Config

        endpoint = self._registry.endpoint or f"cr.{self._registry.region}.aliyuncs.com"
        protocol, _, host = endpoint.rpartition("://")
        config = Config(credential=Chain(), region_id=self._registry.region, endpoint=host)
        config.protocol = protocol or "https"
        return Client(config)

    def login(self) -> Login | None:
        """Return a fresh token for an hour."""
        token = self._call("GetAuthorizationToken", expires_in_hours=_HOURS).body
        return Login(username=token.temp_username, password=token.authorization_token)

    def repository(self, target: str) -> str:
        """Return namespace/prefix/target."""
        return join_path(self._registry.namespace, self._registry.prefix, target)

    def ensure_repository(self, name: str, _moving: tuple[str, ...] = (), /) -> tuple[str, ...]:
        """Create a missing repository; the namespace has to exist."""
        namespace, _, repository = name.partition("/")
        names = {"repo_namespace_name": namespace, "repo_name": repository}
        try:
            self._call("GetRepository", **names)
        except registry_errors.MissingError:
            # tag_immutability has no exclusions, and short tags and attachments' tags have to move.
            settings = {"repo_type": "PRIVATE", "summary": "Published by rdma-images", "tag_immutability": False}
            self._call("CreateRepository", **names, **settings)
            return (f"repository {name}",)
        return ()

    def _call(self, action: str, **fields: Any) -> Any:
        """Return the answer of one action.

        The SDK's exceptions, and answers that say "no", become RegistryErrors.
        """
        from alibabacloud_credentials.exceptions import CredentialException
        from Tea.exceptions import TeaException

        request = getattr(self._models, f"{action}Request")(instance_id=self._registry.instance, **fields)
        method = re.sub(r"(?<!^)(?=[A-Z])", "_", action).lower()
        try:
            response = getattr(self._client, method)(request)
        except TeaException as error:
            if isinstance(getattr(error, "inner_exception", None), CredentialException):
                masked = registry_errors.mask_secrets(str(error))
                raise registry_errors.UnauthorizedError(
                    f"there are no Alibaba Cloud credentials for {self.host} ({masked})\n"
                    "set ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET, a profile, or a role"
                ) from None
            raise self._fault(action, str(getattr(error, "code", "") or ""), str(error)) from None
        except OSError as error:
            raise registry_errors.UnreachableError(
                f"Alibaba Cloud is unreachable for {self.host}: {error}\n{NETWORK}"
            ) from None
        if response.body is not None and response.body.is_success is False:
            raise self._fault(action, str(response.body.code), str(response.body.code))
        return response

    def _fault(self, action: str, code: str, message: str) -> registry_errors.RegistryError:
        masked = registry_errors.mask_secrets(message)
        if not code:
            return registry_errors.UnreachableError(
                f"Alibaba Cloud is unreachable for {self.host}: {masked}\n{NETWORK}"
            )
        refused = f"Alibaba Cloud refuses {action} for {self.host}: {code}: {masked}"
        if any(word in code for word in ("NOT_EXIST", "NOT_FOUND", "NotExist", "NotFound")):
            return registry_errors.MissingError(f"{refused}\ncorrect instance, namespace and prefix in registries.yaml")
        if "Throttling" in code or "ServiceUnavailable" in code:
            return registry_errors.BusyError(f"{refused}\ntry again later")
        return registry_errors.RegistryError(f"{refused}\ncheck the credentials, or ask for the right")
