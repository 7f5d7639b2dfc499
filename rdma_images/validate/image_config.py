"""Read the configuration of an image from its engine, before anything of it runs."""

from typing import Any

from docker import DockerClient
from docker.errors import DockerException, ImageNotFound, NotFound

from rdma_images import engine as engines
from rdma_images.core import leftovers
from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine.docker_command import missing_image
from rdma_images.inspection.inspection import HistoryStep, ImageConfig

UNPACK_SECONDS = 1800  # seconds that the engine may take to unpack an image of tens of gigabytes


def hide_secret_values(image_config: ImageConfig) -> ImageConfig:
    """Return the configuration without values that look like secrets.

    A report is read by more people than an image.
    """

    def masked_values(values: dict[str, str]) -> dict[str, str]:
        return {
            name: "(not shown)" if leftovers.may_be_secret(name, value) else value for name, value in values.items()
        }

    history = [
        step.model_copy(update={"made_by": "(not shown)"}) if leftovers.find_secret(step.made_by.encode()) else step
        for step in image_config.history
    ]
    return image_config.model_copy(
        update={
            "environment": masked_values(image_config.environment),
            "labels": masked_values(image_config.labels),
            "history": history,
        }
    )


def read_image_config(client: DockerClient, ref: str, digest: str | None = None) -> ImageConfig:
    """Return the configuration of image `ref`, or of the image with `digest`.

    The second is so whatever `ref` names now. Raises RefusedError where the engine has no such image, and
    RdmaImagesError where it does not answer.
    """
    api: Any = client.api
    try:
        attributes = api.inspect_image(digest or ref)
        steps = _history(client, attributes["Id"])
    except ImageNotFound:
        raise missing_image(engines.running(), ref) from None
    except DockerException as error:
        raise RdmaImagesError(
            f"the engine did not describe {ref!r}: {error}\nsee with `docker info` that it answers"
        ) from None
    return _image_config(ref, attributes, steps)


def _history(client: DockerClient, digest: str) -> list[dict[str, Any]]:
    """Return the steps that made the image.

    The containerd store knows them once it is unpacked, as for a container.
    """
    api: Any = client.api
    try:
        return list(api.history(digest))
    except NotFound:
        usual, api.timeout = api.timeout, UNPACK_SECONDS
        client.containers.create(digest, ["/unpacked"], network_mode="none").remove(v=True)
        api.timeout = usual
        return list(api.history(digest))


def _image_config(ref: str, attributes: dict[str, Any], steps: list[dict[str, Any]]) -> ImageConfig:
    config = attributes.get("Config") or {}
    pairs = (entry.partition("=") for entry in config.get("Env") or [])
    platform = "/".join(filter(None, (attributes.get("Os"), attributes.get("Architecture"), attributes.get("Variant"))))
    return ImageConfig(
        ref=ref,
        digest=attributes["Id"],
        platform=platform,
        labels=config.get("Labels") or {},
        environment={name: value for name, _, value in pairs},
        user=config.get("User") or "",
        entrypoint=[*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])],
        workdir=config.get("WorkingDir") or "/",
        tags=attributes.get("RepoTags") or [],
        bytes=attributes.get("Size") or 0,
        created=attributes.get("Created") or "",
        layers=(attributes.get("RootFS") or {}).get("Layers") or [],
        history=[HistoryStep(made_by=s.get("CreatedBy") or "", bytes=s.get("Size") or 0) for s in reversed(steps)],
    )
