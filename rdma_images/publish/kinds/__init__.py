"""The kinds of registries. Each module is imported when a registry of its kind is used, and its SDK with it."""

from importlib import import_module
from typing import cast

from rdma_images.core.errors import RefusedError
from rdma_images.publish.kinds.registry_kind import PreparedRepository, RegistryKind
from rdma_images.registry.registries import Registry

__all__ = ["PreparedRepository", "RegistryKind", "open_kind"]

# kind -> module, class, the optional extra that brings its SDK (None: nothing beside what is installed)
_KINDS = {
    "oci": ("oci", "OciKind", None),
    "ecr": ("ecr", "EcrKind", "ecr"),
    "ecr-public": ("ecr", "EcrPublicKind", "ecr"),
    "acr-aliyun": ("acr_aliyun", "AcrAliyunKind", "acr"),
    "acr-azure": ("acr_azure", "AcrAzureKind", "azure"),
}


def open_kind(registry: Registry) -> RegistryKind:
    """Return the registry, ready to be asked. Raises RefusedError when the SDK of its kind is not installed."""
    module, name, extra = _KINDS[registry.kind]
    try:
        opened = getattr(import_module(f"{__name__}.{module}"), name)(registry)
    except ModuleNotFoundError as error:
        raise RefusedError(
            f"a registry of kind {registry.kind} needs {error.name}, which is not installed\n"
            f"pip install 'rdma-images[{extra}]'"
        ) from None
    return cast(RegistryKind, opened)
