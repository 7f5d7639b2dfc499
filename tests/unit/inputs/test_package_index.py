"""The package index that the clients of this machine are configured for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.inputs import package_index

INDEX = "https://packages.example/simple"


def configured(folder: Path, name: str) -> str:
    """Write an index into a configuration of pip, and return its address."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    address = f"{INDEX}/{name.replace('/', '-')}"
    path.write_text(f"[global]\nno-color = true\nINDEX_URL = {address}\n")
    return address


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment whose homes and folders of configuration are in `folder`."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "XDG_"))}
    return plain | {"HOME": str(folder)} | {name: value.format(folder) for name, value in variables.items()}


@pytest.mark.parametrize(
    ("files", "variables"),
    [
        ([".config/pip/pip.conf"], {}),
        (["home/pip/pip.conf", ".config/pip/pip.conf"], {"XDG_CONFIG_HOME": "{}/home"}),
        (["chosen.conf", ".config/pip/pip.conf"], {"PIP_CONFIG_FILE": "{}/chosen.conf"}),
        ([".config/pip/pip.conf"], {"PIP_CONFIG_FILE": "{}/absent.conf"}),
        ([".config/pip/pip.conf"], {"PIP_CONFIG_FILE": "/dev/null"}),
        ([], {}),
    ],
    ids=str,
)
def test_the_index_is_the_one_that_pip_itself_names(
    files: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    for name in files:
        configured(tmp_path, name)
    environ = environment(tmp_path, **variables)
    listing = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(listing, env=environ, capture_output=True, text=True, check=True).stdout
    named = re.findall(r"^global\.index-url='(.*)'$", listed, re.MULTILINE)
    default = package_index.index_address(environment(tmp_path, PIP_CONFIG_FILE="/dev/null"))
    assert package_index.index_address(environ) == (named[-1] if named else default)


def test_what_is_chosen_for_uv_comes_first_and_a_variable_of_pip_before_its_files(tmp_path: Path) -> None:
    configured(tmp_path, ".config/pip/pip.conf")
    both = environment(tmp_path, PIP_INDEX_URL=f"{INDEX}/variable", UV_DEFAULT_INDEX=f"{INDEX}/uv")
    assert package_index.index_address(both) == f"{INDEX}/uv"
    del both["UV_DEFAULT_INDEX"]
    assert package_index.index_address(both) == f"{INDEX}/variable"
