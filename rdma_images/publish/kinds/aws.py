"""What ECR and ECR Public share: boto3's errors as PublishErrors, and the authorization token."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import botocore.exceptions

from rdma_images.registry import faults
from rdma_images.registry.credentials import Login

_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
_REJECTED = ("UnrecognizedClientException", "InvalidSignatureException", "ExpiredToken", "ExpiredTokenException")


@contextmanager
def aws_errors(service: str, action: str) -> Iterator[None]:
    """Raise boto3's errors inside the block as PublishErrors: `service` was asked for `action`."""
    try:
        yield
    except botocore.exceptions.ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        if code in _DENIED:
            raise faults.DeniedError(f"AWS denies {action} in {service}: {message}\nask for that right") from None
        if code in _REJECTED:
            raise faults.UnauthorizedError(
                f"AWS does not take the credentials for {service} ({code})\nlog in again"
            ) from None
        kind = faults.BusyError if "Throttl" in code or code.endswith("ServerException") else faults.PublishError
        raise kind(
            f"AWS refuses {action} in {service}: {code}: {message}\ncorrect registries.yaml, or try again later"
        ) from None
    except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError):
        raise faults.UnauthorizedError(
            f"there are no AWS credentials for {service}\nset a profile, AWS_ACCESS_KEY_ID, or a role"
        ) from None
    except (botocore.exceptions.EndpointConnectionError, botocore.exceptions.HTTPClientError) as error:
        raise faults.UnreachableError(
            f"AWS is unreachable for {service}: {error}\ncheck region, endpoint and proxy"
        ) from None
    except botocore.exceptions.BotoCoreError as error:
        raise faults.PublishError(f"{service}: {error}\ncheck the AWS configuration of this machine") from None


def login_of(authorization: dict[str, Any]) -> Login:
    """Return the login in ECR's token, the base64 of "AWS:password"."""
    username, _, password = base64.b64decode(authorization["authorizationToken"]).decode().partition(":")
    return Login(username=username, password=password)
