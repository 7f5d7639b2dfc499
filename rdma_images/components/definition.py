"""The interface of a component.

Steps loop over `components.ALL`; only rules, `onto` and what concerns one component alone name it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from re import Pattern
from typing import Literal, Protocol

from rdma_images.core import versions
from rdma_images.core.image import Details, Fabric, HostRequirement, Image
from rdma_images.core.source import ARCHIVE_SIGNATURE, UNPINNED, Source
from rdma_images.facts import Facts


class Combination(Protocol):
    """A target with all versions, its properties, and "fabric"."""

    @property
    def fabric(self) -> Fabric:
        """Return the fabric of the target."""

    def __contains__(self, component: str) -> bool:
        """Return whether it has the component, or the property."""

    def __getitem__(self, component: str) -> str:
        """Return the version of a component, or the value of a property."""


@dataclass(frozen=True)
class Axis:
    """One axis of the matrix. `values` lists its values from the facts, the oldest first.

    Where no value is chosen, `decided_by` names the axis whose value implies this one's; `version_from` looks it up
    (None: the facts do not know it, or there is none). `default` is for an axis that nothing implies: a property of the
    image, which has no version and is no component. With `property_of`, of a component: it exists only with that.
    `aliases` has the value for a word that users may write instead, in small letters.
    """

    name: str
    values: Callable[[Facts], Iterable[str]]
    decided_by: str | None = None
    version_from: Callable[[Facts, Mapping[str, str]], str | None] | None = None
    default: str | None = None
    property_of: str | None = None
    aliases: Callable[[Facts], Mapping[str, str]] = lambda _: {}


@dataclass(frozen=True)
class BundledVersion:
    """The version of a component that is not an axis itself.

    `brought_by` is the axis that brings it. `version` looks it up from what is chosen on the axes; None where the image
    does not have the component, or the facts do not know its version.
    """

    brought_by: str
    version: Callable[[Mapping[str, str], Fabric, Facts], str | None]


def _is_prefix(planned: str, measured: str) -> bool:
    """Return whether the measured version is the planned one or more exact: 3.13.5 is a 3.13."""
    parts = planned.split(".")
    return measured.split(".")[: len(parts)] == parts


@dataclass(frozen=True, kw_only=True)
class ComponentDefinition:
    """One component: with an axis of its own, or `bundled` with another component.

    `role` is its position in tags and tables: what a target is about, what an image stands on, and all else.
    """

    name: str
    position: int = 200  # among the components, lowest first: after those that decide its version
    axis: Axis | None = None
    properties: tuple[Axis, ...] = ()  # axes that exist only with this component
    bundled: BundledVersion | None = None
    role: Literal["foundation", "subject", "part"] = "part"
    tag: str | None = None  # what a tag has before the version; None where tags do not name the component
    is_optional: bool = False  # whether a target may add it by `with`
    # Where its stage goes in a target that does not name it: after the first of these.
    stage_after: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # the components that it is compiled for or runs on
    in_tables: bool = True  # whether the table of a plan has a column of it
    details: Callable[[Combination, Facts], Details] = lambda *_: Details()
    requirements: Callable[[Combination, Facts], Iterable[HostRequirement]] = lambda *_: ()  # of the host
    python_packages: Callable[[Combination, Facts], Iterable[str]] = lambda *_: ()  # requirements of its wheels
    is_compiled: Callable[[Combination, Facts], bool] = lambda *_: False  # whether its build needs CUDA's compiler
    required_for: tuple[Fabric, ...] = ()  # the fabrics of which every target has it
    was_tested: Callable[[str, Fabric, Facts], bool] = lambda *_: True  # whether a version was seen to work on a fabric
    wheel: Pattern[str] | None = None  # the names of the wheel whose version its axis decides
    decides_wheels: bool = False  # images with equal versions of all these have the same wheels
    # Where its bytes come from; one that is not pinned by the facts has its pin in the locks.
    sources: Callable[[Image, Facts], Iterable[Source]] = lambda *_: ()
    source_names: tuple[str, ...] = ()  # by which mirrors.yaml may call them, without a version
    stand_in_arguments: Callable[[Image, Facts], Mapping[str, str]] = lambda *_: {}  # build arguments of its stand-in
    must_be_measured: bool = False  # whether a report must have measured its version, for a tag to name it
    matches_measured: Callable[[str, str], bool] = _is_prefix  # whether a planned version is true of the measured one


def sorted_versions(values: Iterable[str]) -> list[str]:
    """Return versions without doubles, the oldest first."""
    return sorted(set(values), key=versions.sort_key)


def download_source(name: str, version: str, address: str, pin: str = UNPINNED) -> Source:
    """Return the source of a file to download and verify; without a pin, the lock has it."""
    return Source(id=f"{name}-{version}", component=name, kind="download", upstream=address, pin=pin, context=name)


def release_source(image: Image, name: str, url: str) -> tuple[Source]:
    """Return the source of the component's release that an image has; {version} in `url` is replaced."""
    version = image.version(name)
    return (download_source(name, version, url.format(version=version)),)


def apt_source(name: str, role: str, address: str, suites: list[str], components: str, keyring: str) -> Source:
    """Return the source of the apt archive from which a stage installs."""
    return Source(
        id=f"{name}-{suites[0].removesuffix('-security')}",
        component=name,
        kind="apt",
        upstream=address.rstrip("/"),
        pin=ARCHIVE_SIGNATURE,
        role=role,
        suites=tuple(suites),
        components=components,
        keyring=keyring,
    )
