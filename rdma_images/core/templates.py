"""Jinja2 with the options of all templates of this project."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jinja2

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND


def environment(folders: Iterable[Path], escape: bool = False) -> jinja2.Environment:
    """Return an environment for the templates in `folders`, escaping HTML with `escape`."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(list(folders)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=escape,
    )
    templates.globals["COMMAND"] = COMMAND  # how the tool is called where it is installed
    return templates


@contextmanager
def template_errors(name: str) -> Iterator[None]:
    """Raise errors in the templates of `name` ("target efa-pytorch") as RdmaImagesError."""
    try:
        yield
    except jinja2.TemplateSyntaxError as error:
        raise RdmaImagesError(f"{error.filename}:{error.lineno}: {error.message}\ncorrect the template there") from None
    except jinja2.TemplateNotFound as error:
        raise RdmaImagesError(
            f"the templates of {name} name {error.name}, which does not exist\nwrite it, or correct the name"
        ) from None
    except (jinja2.UndefinedError, KeyError) as error:
        raise RdmaImagesError(
            f"the templates of {name} use a name that is not defined: {error}\ncorrect the template, or define the name"
        ) from None
