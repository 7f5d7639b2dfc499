"""Jinja2 with the options of all templates of this project."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

import jinja2
from jinja2.bccache import Bucket

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND, state_folder


class _Options(TypedDict):
    """Options of compiling templates, a part of the name in the cache of compiled ones."""

    trim_blocks: bool
    lstrip_blocks: bool
    keep_trailing_newline: bool
    autoescape: bool


class _BytecodeCache(jinja2.FileSystemBytecodeCache):
    """Cache of compiled templates between runs; compiling those of all targets takes 0.07 s."""

    def get_cache_key(self, name: str, filename: str | None = None) -> str:  # noqa: ARG002 - jinja2 gives both
        """Return the key without the file's folder, so that checkouts share entries."""
        return super().get_cache_key(name)

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take one, where that is possible: to unpickle what is damaged may raise anything."""
        with suppress(Exception):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep one, where that is possible."""
        with suppress(OSError):
            Path(self.directory).mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


def environment(folders: Iterable[Path], escape: bool = False) -> jinja2.Environment:
    """Return an environment for the templates in `folders`, escaping HTML with `escape`."""
    options = _Options(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=escape)
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(list(folders)),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=_bytecode_cache(options),
        **options,
    )
    templates.globals["COMMAND"] = COMMAND  # how the tool is called where it is installed
    return templates


def _bytecode_cache(options: _Options) -> _BytecodeCache | None:
    options_digest = sha256(f"{jinja2.__version__} {sorted(options.items())}".encode()).hexdigest()[:12]
    with suppress(RdmaImagesError):  # a user without a home folder has nothing kept
        return _BytecodeCache(str(state_folder() / "templates"), f"%s-{options_digest}")
    return None


@contextmanager
def template_errors(name: str) -> Iterator[None]:
    """Raise errors in the templates of `name` ("target efa-pytorch") as RdmaImagesError."""
    try:
        yield
    except jinja2.TemplateSyntaxError as error:
        raise RdmaImagesError(f"{error.filename}:{error.lineno}: {error.message}\ncorrect the template there") from None
    except jinja2.UndefinedError as error:
        raise RdmaImagesError(
            f"the templates of {name} ask for what is not there: {error}\ncorrect the template, or add what it asks for"
        ) from None
