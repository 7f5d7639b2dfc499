"""Jinja2 as every template of the project is filled in: no variable undefined, no lines left over from tags."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jinja2

from rdma_images.core.errors import RdmaImagesError


def environment(folders: Iterable[Path], escape: bool = False) -> jinja2.Environment:
    """What finds templates in `folders`, the first that has one; `escape` is for what a browser reads."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(list(folders)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=escape,
    )


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn what is wrong with the templates of `what` ("target efa-pytorch") into RdmaImagesError."""
    try:
        yield
    except jinja2.TemplateSyntaxError as error:
        raise RdmaImagesError(f"{error.filename}:{error.lineno}: {error.message}\ncorrect the template there") from None
    except jinja2.UndefinedError as error:
        raise RdmaImagesError(
            f"the templates of {what} ask for what is not there: {error}\ncorrect the template, or add what it asks for"
        ) from None
