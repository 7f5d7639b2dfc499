"""Images that the engine gets by their digest, and the name by which a build finds them there."""

from rdma_images.core.progress import Progress, silent
from rdma_images.engine import docker_command
from rdma_images.engine.container_engine import Engine


def local_name(ref: str) -> str:
    """Return the name in the engine of the image "NAME@sha256:…"."""
    return f"rdma-images/onto:{ref.rpartition(':')[2][:12]}"


def provide(engine: Engine, ref: str, progress: Progress = silent) -> str:
    """Return the local name of the image `ref`, which is pulled where the engine does not have it.

    Raises RdmaImagesError where it cannot be pulled.
    """
    digest, local = ref.partition("@")[2], local_name(ref)
    present_name = next((name for name in (digest, ref) if _has(engine, name)), "")
    if not present_name:
        progress(f"pulling {ref}")
        docker_command.output(engine, "pull", "--quiet", ref)
    docker_command.output(engine, "tag", present_name or ref, local)
    return local


def _has(engine: Engine, name: str) -> bool:
    return docker_command.run(engine, "image", "inspect", name).returncode == 0
