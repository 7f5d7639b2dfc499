"""Find the package index for which this machine's clients are configured."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from uv import find_uv_bin

from rdma_images.core.errors import RdmaImagesError

RELEVANT = ("UV_", "PIP_", "XDG_", "HOME", "PATH", "VIRTUAL_ENV")  # variables that decide where it is read from


def index_address(environ: Mapping[str, str] | None = None) -> str:
    """Return the index that uv uses here: its own setting, else pip's, else its default.

    pip is asked too, since a mirror is more often set in pip.conf than in uv.toml; pip's extra indexes are not used.
    """
    environ = os.environ if environ is None else environ
    relevant = {name: value for name, value in environ.items() if name.startswith(RELEVANT)}
    configured = _uv_index(tuple(sorted(relevant.items())))
    default = _uv_index(tuple(sorted(without_uv(relevant).items())), "--no-config")
    return configured if configured != default else (_pip_index(relevant) or default)


def without_uv(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without uv's variables, except its cache."""
    return {name: value for name, value in environ.items() if not name.startswith("UV_") or name == "UV_CACHE_DIR"}


@cache
def _uv_index(environ: tuple[tuple[str, str], ...], *options: str) -> str:
    """Return the index that uv would write as --index-url, without network.

    This Python is named because uv would start every other one on PATH to choose: 0.3 s in place of 0.02.
    """
    command = [find_uv_bin(), "pip", "compile", "-", "--emit-index-url", "--no-header", "--offline", "--quiet"]
    command += [f"--python={sys.executable}", *options]
    with tempfile.TemporaryDirectory() as folder:  # away from any project's own uv.toml
        process = subprocess.run(command, input="", env=dict(environ), cwd=folder, capture_output=True, text=True)
    for line in process.stdout.splitlines():
        if line.startswith("--index-url "):
            return line.removeprefix("--index-url ").strip()
    raise RdmaImagesError(
        f"uv does not name its package index: {process.stderr.strip() or process.stdout.strip()}\nset UV_DEFAULT_INDEX"
    )


def _pip_index(environ: Mapping[str, str]) -> str | None:
    """Return the index of pip's environment or configuration, read as pip does; None without one."""
    if configured := environ.get("PIP_INDEX_URL"):
        return configured
    import configparser  # here, because an image whose wheels are locked needs no index

    # `pip config get` looks into one file alone, and takes 0.4 s.

    configuration = configparser.RawConfigParser()
    configuration.optionxform = lambda name: name.lower().replace("_", "-").removeprefix("--")  # type: ignore[method-assign,assignment]
    try:
        configuration.read(_pip_files(environ))
    except (configparser.Error, UnicodeDecodeError):  # which pip names when it is next used
        return None
    return configuration.get("global", "index-url", fallback=None)


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Return pip's configuration files, each before those that override it."""
    chosen = environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return []
    home = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME') or '~'}/.config"
    files = [Path("/etc/pip.conf"), Path(home).expanduser() / "pip" / "pip.conf", Path(sys.prefix) / "pip.conf"]
    return [*files, Path(chosen)] if chosen else files
