"""Components that are Python packages: each is a file of facts/packages/, named after its axis."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from rdma_images.components.definition import Axis, Combination, ComponentDefinition, sorted_versions
from rdma_images.core import paths, versions
from rdma_images.core.image import Fabric
from rdma_images.core.yaml_file import Strict
from rdma_images.facts import Facts
from rdma_images.facts.facts_file import Fact, FactsFile, Needs, Pattern, Version

FOLDER = "packages"  # of facts/


def _requirement(text: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement  # here, because few plans read such a file

    try:
        Requirement(text.format(version="1.0", cuda="13"))
    except (InvalidRequirement, KeyError, IndexError, ValueError):
        raise ValueError(f"{text!r} is no requirement: {{version}} and {{cuda}} alone may be in braces") from None
    return text


# {version} stands for the release, and {cuda} for the major of the image's CUDA.
PackageRequirement = Annotated[str, AfterValidator(_requirement)]


class PackageRelease(Fact):
    """One release, and the versions of other components beside which it works."""

    needs: Needs = Field(default_factory=dict)


class FabricUse(Fact):
    """How the package uses a fabric."""

    requirements: tuple[PackageRequirement, ...] = ()  # in place of those of every fabric
    setting: str  # what a program or job has to say for it; empty where nothing
    opens: tuple[str, ...] = ()  # libraries of the fabric that it opens
    needs: Needs = Field(default_factory=dict)  # for that fabric


class NoFabric(Fact):
    """Why the package does not use a fabric, and what to do."""

    why: str
    fix: str


class KvTransfer(Strict):
    """How a server's KV cache goes from prefill to decode over one fabric."""

    package: str  # the component that moves it
    start_line: str = 'exec "$@"'  # a line of sh that starts the server
    prefill: tuple[str, ...]  # words after the server's own
    decode: tuple[str, ...]
    env: dict[str, str] = Field(default_factory=dict)
    router: tuple[str, ...] = ()  # words after the router's own
    bootstrap: str = ""  # the port at which prefill servers are asked for their transfers; empty for none


class Serving(Fact):
    """How a server with prefill and decode apart is started; {model}, {gpus} and {port} are the job's."""

    server: tuple[str, ...]
    several_nodes: str = ""  # words of sh after the server's, where it spans nodes; empty where it cannot
    router: tuple[str, ...]
    ready: str = ""  # the router's path that answers 200 once its servers do; empty where it opens its port then
    transfers: dict[Fabric, KvTransfer]


class PackageFacts(FactsFile):
    """A file of facts/packages/."""

    summary: str
    requirements: tuple[PackageRequirement, ...] = ()  # of every fabric
    libraries: Pattern | None = None  # for the beginning of its libraries' paths in site-packages
    releases: dict[Version, PackageRelease]
    fabrics: dict[Fabric, FabricUse]
    not_on: dict[Fabric, NoFabric] = Field(default_factory=dict)
    serving: Serving | None = None  # of a package that serves models


def package_facts(name: str, facts: Facts) -> PackageFacts:
    """Return the facts of the component `name`. Raises RefusedError, with file and line, for what is wrong in them."""
    return facts.table(PackageFacts, f"{FOLDER}/{name}.yaml")


def component_names() -> list[str]:
    """Return the components that are Python packages, in alphabetical order."""
    return sorted({file.stem for folder in paths.data_folders("facts") for file in folder.glob(f"{FOLDER}/*.yaml")})


def component_definitions() -> Iterator[ComponentDefinition]:
    """Yield a component for each file; no file is read yet."""
    for name in component_names():
        yield _component(name)


def _component(name: str) -> ComponentDefinition:
    def python_packages(combination: Combination, facts: Facts) -> Iterator[str]:
        values: Mapping[str, object] = {
            "version": combination[name],
            "cuda": versions.major(combination["cuda"]) if "cuda" in combination else "",
        }
        table = package_facts(name, facts)
        use = table.fabrics.get(combination.fabric)
        for requirement in (use.requirements if use else ()) or table.requirements:
            yield requirement.format(**values)

    return ComponentDefinition(
        name=name,
        axis=Axis(name, lambda facts: sorted_versions(package_facts(name, facts).releases)),
        tag=name,
        is_optional=True,
        wheel=re.compile(re.escape(name)),
        python_packages=python_packages,
    )
