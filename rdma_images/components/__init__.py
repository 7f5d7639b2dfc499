"""The components, a module each: what decides their versions, and what they need.

A module of this package that defines a `ComponentDefinition` adds that component; a file of facts/packages/ adds one
that is a Python package. Nothing else lists them.
"""

import importlib
import pkgutil

from rdma_images.components import package
from rdma_images.components.definition import ComponentDefinition


def _defined_components() -> dict[str, ComponentDefinition]:
    """Return the components that the modules of this package define, by name."""
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    values = (value for module in modules for value in vars(module).values())
    return {value.name: value for value in values if isinstance(value, ComponentDefinition)}


# What decides another one's version comes before it. Plans, sources and Dockerfiles have them in this order.
ALL: tuple[ComponentDefinition, ...] = (
    *sorted(_defined_components().values(), key=lambda component: (component.position, component.name)),
    *package.component_definitions(),
)
BY_NAME = {component.name: component for component in ALL}

_FOUNDATIONS = tuple(component for component in ALL if component.role == "foundation")
_SUBJECTS = tuple(component for component in ALL if component.role == "subject")
_PARTS = tuple(component for component in ALL if component.role == "part")
IN_TABLES = tuple(component for component in (*_FOUNDATIONS, *_SUBJECTS, *_PARTS) if component.in_tables)
IN_TAGS = tuple(component for component in (*_SUBJECTS, *_PARTS, *reversed(_FOUNDATIONS)) if component.tag is not None)


def axis_of_wheel(name: str) -> str | None:
    """Return the axis that decides a package (name in normal form); None if no axis does."""
    return next((component.name for component in ALL if component.wheel and component.wheel.fullmatch(name)), None)
