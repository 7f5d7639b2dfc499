"""The results of steps for an image: JSON files in build/images/<image id>/."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from rdma_images.core import atomic, files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import BuildRecord
from rdma_images.core.paths import COMMAND, image_folder
from rdma_images.core.plain import first_error, plain

Form = TypeVar("Form")
MAX_FILE_BYTES = 256 * 2**20  # bytes; the largest is the bill of materials of an image, some MB


@dataclass(frozen=True)
class StepFile(Generic[Form]):
    """One file of a step. `decode` raises ValueError for JSON of another form."""

    name: str  # "build.json"
    step: str  # the command that writes it: "build"
    decode: Callable[[object], Form]
    encode: Callable[[Form], object]

    def path(self, image_id: str) -> Path:
        """Return where it is for an image."""
        return image_folder(image_id) / self.name

    def read(self, image_id: str) -> Form | None:
        """Return the step's result for an image, or None. Raises RdmaImagesError if broken."""
        return self.read_file(self.path(image_id))

    def read_if_valid(self, image_id: str) -> Form | None:
        """Return the step's result for an image; None where there is no valid file."""
        return self.read_file_if_valid(self.path(image_id))

    def read_file_if_valid(self, path: Path) -> Form | None:
        """Return what is in the file at `path`; None where there is no valid file."""
        try:
            return self.read_file(path)
        except RdmaImagesError:
            return None

    def read_file(self, path: Path) -> Form | None:
        """Return what is in the file at `path`; None where there is none. Raises RdmaImagesError if broken."""
        if not files.exists(path):
            return None
        text = files.read_bytes(path, MAX_FILE_BYTES)
        try:
            return self.decode(pydantic_core.from_json(text))
        except ValidationError as error:
            problem = first_error(error)
        except ValueError as error:
            problem = f"this file cannot be read: {plain(str(error))}"
        raise RdmaImagesError(f"{path}: {problem}\nrun `{COMMAND} {self.step}` again")

    def write(self, image_id: str, value: Form) -> Path:
        """Write it for an image; returns where it is."""
        path = self.path(image_id)
        self.write_file(path, value)
        return path

    def write_file(self, path: Path, value: Form) -> None:
        """Write it to `path`."""
        atomic.write(path, self.text(value))

    def text(self, value: Form) -> str:
        """Return the JSON text of a value."""
        return json.dumps(self.encode(value), indent=2) + "\n"


def step_file(name: str, step: str, form: type[Form]) -> StepFile[Form]:
    """Return the file of a step that hands on a dataclass."""

    @functools.cache
    def adapter() -> TypeAdapter[Form]:
        return TypeAdapter(form)

    return StepFile(
        name,
        step,
        lambda document: adapter().validate_python(document),
        lambda result: adapter().dump_python(result, mode="json"),
    )


BUILD_FILE = step_file("build.json", "build", BuildRecord)
