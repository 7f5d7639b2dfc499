"""A case: where something went wrong, the image that shows it, and what must be reported of it."""

import functools
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter
from yaml.constructor import ConstructorError

from tests.incidents.image import Change, Image, Made

FOLDER = Path(__file__).parent


class Told(Made):
    """What must be reported: the check, "" for any, and words that its first line has to have."""

    check: str = ""
    words: tuple[str, ...]


class Incident(Made):
    """One case. `where` is an address or "invented"; `told` is None for a good image, which gets no error.

    `besides` are checks that may fail, too. `fix` is what the message asks for: with it the check passes,
    or no longer names one of the known faults of a version that it named.
    `reinstalled` are files that the fix installs again, as the base has them.
    `first` is what the validators made of the case when it was written, "known" where its check was written with it;
    `open` says why they are not right today.
    """

    where: str
    what: str
    first: Literal["right", "wrong", "known"]
    base: str
    change: Change = Change()
    told: Told | None = None
    besides: tuple[str, ...] = ()
    fix: Change | None = None
    reinstalled: tuple[str, ...] = ()
    open: str = ""

    @property
    def image(self) -> Image:
        """The image that shows it."""
        return base(self.base).changed(self.change)

    @property
    def fixed(self) -> Image | None:
        """The image after the fix was followed."""
        if not self.fix and not self.reinstalled:
            return None
        good = Change(files={path: base(self.base).files[path] for path in self.reinstalled})
        return self.image.changed(self.fix or Change()).changed(good)


CASES = TypeAdapter(dict[str, Incident])


@functools.cache
def base(name: str) -> Image:
    """An image of bases.yaml."""
    known = yaml.safe_load((FOLDER / "bases.yaml").read_text(encoding="utf-8"))
    image = Image()
    for part in known["images"][name]:
        image = image.changed(Change.model_validate(known["parts"][part]))
    return image


class _Loader(yaml.CSafeLoader):
    """YAML in which a key that is written twice is an error: the first one would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping. Raises ConstructorError for a key that is written twice."""
        keys: set[str] = set()
        for key, _ in node.value:
            if key.value in keys:
                raise ConstructorError(None, None, f"{key.value!r} is written twice", key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


def read(folder: Path) -> dict[str, Incident]:
    """Return the cases of a folder's files by name. Raises ValueError for a name that two cases have."""
    cases: dict[str, Incident] = {}
    files: dict[str, str] = {}
    for file in sorted(folder.glob("*.yaml")):
        with file.open(encoding="utf-8") as stream:
            found = CASES.validate_python(yaml.load(stream, _Loader))
        for name in found:
            if name in cases:
                raise ValueError(f"{name!r} is in {files[name]} and in {file.name}: give one of the cases another name")
            files[name] = file.name
        cases |= found
    return cases


@functools.cache
def incidents() -> dict[str, Incident]:
    """Return every case by its name."""
    return read(FOLDER / "cases")
