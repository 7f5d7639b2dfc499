"""A case: where something went wrong, the image that shows it, and what must be reported of it."""

import functools
from pathlib import Path

from pydantic import RootModel

from rdma_images.core import yaml_file
from rdma_images.core.errors import RefusedError
from tests.incidents.image import ImageChange, IncidentData, IncidentImage

FOLDER = Path(__file__).parent


class ExpectedReport(IncidentData):
    """What must be reported: the check, "" for any, and words that its first line has to have."""

    check: str = ""
    words: tuple[str, ...]


class Incident(ImageChange):
    """One case: what makes it of its base, and what must be reported.

    Attributes:
        source: An address, or "invented".
        summary: What goes wrong; of a good image, what it is.
        base: The image of bases.yaml that it begins from.
        fabric: What the report asks for; only samples say it.
        reported: None for a good image, which gets no error.
        allowed: Checks that may fail, too.
        fix: What the message asks for. With it the check passes, or no longer names one of the known faults of a
            version that it named.
        reinstalled: Files that the fix installs again, as the base has them.
    """

    source: str = "invented"
    summary: str
    base: str = "efa"
    fabric: str = ""
    reported: ExpectedReport | None = None
    allowed: tuple[str, ...] = ()
    fix: ImageChange | None = None
    reinstalled: tuple[str, ...] = ()

    @property
    def image(self) -> IncidentImage:
        """Return the image that shows it."""
        return _changed(base(self.base), self)

    @property
    def fixed(self) -> IncidentImage | None:
        """Return the image after the fix was followed, None where a case has no fix."""
        if not self.fix and not self.reinstalled:
            return None
        fixed = _changed(self.image, self.fix or ImageChange())
        good = {path: base(self.base).files[path] for path in self.reinstalled}
        return fixed.model_copy(update={"files": {**fixed.files, **good}})


class BaseImages(IncidentData):
    """The file bases.yaml: changes by name, and images as the changes that make them, in order."""

    parts: dict[str, ImageChange]
    images: dict[str, tuple[str, ...]]


class Cases(RootModel[dict[str, Incident]]):
    """A file of cases by name."""


@functools.cache
def _bases() -> BaseImages:
    return yaml_file.load(FOLDER / "bases.yaml", BaseImages)


@functools.cache
def base(name: str) -> IncidentImage:
    """Return an image of bases.yaml."""
    image = IncidentImage()
    for part in _bases().images[name]:
        image = image.changed(_bases().parts[part])
    return image


def _changed(image: IncidentImage, change: ImageChange) -> IncidentImage:
    """Return an image with the parts of a change applied, and the change."""
    for part in change.parts:
        image = image.changed(_bases().parts[part])
    return image.changed(change)


def read(folder: Path) -> dict[str, Incident]:
    """Return all cases below a folder by name. Raises RefusedError for a repeated name."""
    cases: dict[str, Incident] = {}
    files: dict[str, Path] = {}
    for file in sorted(folder.rglob("*.yaml")):
        for name, incident in yaml_file.load(file, Cases).root.items():
            if name in cases:
                raise RefusedError(f"{name!r} is in {files[name]} and in {file}\ngive one of the cases another name")
            cases[name], files[name] = incident, file
    return cases


@functools.cache
def incidents() -> dict[str, Incident]:
    """Return every case by its name."""
    return read(FOLDER / "cases")
