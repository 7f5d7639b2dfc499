"""Variables of a user that take the fabric from a job, or show a secret in its files."""

from collections.abc import Iterator, Mapping

from rdma_images.core import leftovers
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import FABRIC_TITLES, Fabric
from rdma_images.plan import image_settings


def refuse_overrides(env: Mapping[str, str], image_environment: Mapping[str, str], fabric: Fabric) -> None:
    """Raise RefusedError, with a line for each variable of `env` that would expose a secret or change the network."""
    if problems := [*_secrets(env), *_networks(env, image_environment, fabric)]:
        raise RefusedError("\n".join([*problems, "remove it, or do as it says"]))


def _secrets(env: Mapping[str, str]) -> Iterator[str]:
    """Yield variables whose values are secrets by form or name, without the values."""
    for name, value in env.items():
        if leftovers.is_secret_value(name, value) or leftovers.is_secret_name(name, value):
            later = f"--field secrets.{name}=env:{name} reads it later"
            yield f"{name}: the files of the job would show its value, which may be a secret; {later}"


def _networks(env: Mapping[str, str], image_environment: Mapping[str, str], fabric: Fabric) -> Iterator[str]:
    for name in (image_settings.NETWORK, image_settings.PROVIDER):
        value = env.get(name)
        if value is not None and (value != image_environment.get(name, value) or value.lower() == "socket"):
            tcp = "--field tcp=true writes such a job, to compare with"
            yield f"{name}={value}: NCCL then leaves {FABRIC_TITLES[fabric]}; {tcp}"
