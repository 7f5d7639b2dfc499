"""The layers of an image: what takes space, and what must not be in them."""

import re
from typing import NamedTuple

from rdma_images.core import leftovers, paths, yaml_file
from rdma_images.core.yaml_file import Strict
from rdma_images.inspection.inspection import Inspection
from rdma_images.validate.validator import Requirement, skip, skip_unmeasured, validator
from validators.support.wording import shorten_list

LAYER_SOURCE = "a file that a later layer removes is still pulled, and still readable, with the layer that brought it"
HOST_KEY = re.compile(r"/etc/ssh/ssh_host_\w+_key")
HOST_KEY_SOURCE = (
    "Debian's openssh-server, debian/openssh-server.postinst: installing it makes the keys; sshd_config(5), HostKey"
)
MAX_SHOWN = 8


class Budgets(Strict):
    """validators/budgets.yaml: bytes to pull, by target."""

    bytes_to_pull: dict[str, int]


class Leftover(NamedTuple):
    """A file that has no business in an image, and the number of its layer."""

    kind: str
    path: str
    why: str
    layer: int

    def __str__(self) -> str:
        """Return the path, and why and where it was found."""
        return f"{self.path} ({self.why}, layer {self.layer})"


def found_leftovers(inspection: Inspection) -> list[Leftover]:
    """Return the leftovers in any layer."""
    if inspection.measured.layers is None:
        skip_unmeasured(inspection, "layers")
    return [
        Leftover(kind, path, why, number)
        for number, layer in enumerate(inspection.measured.layers, 1)
        for kind, reasons in layer.leftovers
        for path, why in reasons.items()
    ]


def megabytes(size: int) -> str:
    """Return bytes for people."""
    return f"{size / 1e6:,.0f} MB"


@validator("layers.secrets", source=LAYER_SOURCE)
def test_secrets(found_leftovers: list[Leftover], require: Requirement) -> None:
    """No secret lies in any layer, as the content of its files shows."""
    secrets = [
        leftover
        for leftover in found_leftovers
        if leftover.kind == "secret" and leftover.why != leftovers.BY_NAME and not HOST_KEY.fullmatch(leftover.path)
    ]
    require(
        not secrets,
        expected="none",
        actual=f"everybody who pulls the image can read {shorten_list(secrets)}" if secrets else "none",
        fix="replace the secret: everybody who pulled the image has it; use --mount=type=secret in builds",
    )


@validator("layers.secret-names", source=LAYER_SOURCE, severity="warning")
def test_secret_names(found_leftovers: list[Leftover], require: Requirement) -> None:
    """No layer has a file in which programs keep logins, also where its content is of no known form."""
    files = [entry.path for entry in found_leftovers if entry.kind == "secret" and entry.why == leftovers.BY_NAME]
    require(
        not files,
        expected="none",
        actual=f"programs keep logins in {shorten_list(files)}, which everybody who pulls the image can read"
        if files
        else "none",
        fix="remove the file in the step that makes it, or mount it with --mount=type=secret",
    )


@validator("layers.host-keys", source=HOST_KEY_SOURCE, severity="warning")
def test_host_keys(found_leftovers: list[Leftover], require: Requirement) -> None:
    """No layer holds the keys of an SSH server, by which every container is the same host."""
    keys = [entry.path for entry in found_leftovers if entry.kind == "secret" and HOST_KEY.fullmatch(entry.path)]
    require(
        not keys,
        expected="none",
        actual=f"{shorten_list(keys)}: all containers have the same SSH host key" if keys else "none",
        fix="remove them in the layer that installs openssh-server, and run `ssh-keygen -A` when the container starts",
    )


@validator("layers.caches", source=LAYER_SOURCE, severity="note")
def test_caches(found_leftovers: list[Leftover], require: Requirement) -> None:
    """No package manager's cache lies in any layer."""
    caches = [leftover for leftover in found_leftovers if leftover.kind == "cache"]
    require(
        not caches,
        expected="none",
        actual=shorten_list(caches) or "none",
        fix="use --mount=type=cache, or remove them in the same RUN: rm -rf /var/lib/apt/lists/*, pip --no-cache-dir",
    )


def budget(inspection: Inspection) -> int | None:
    """Return the most bytes that an image of this target may take to pull; None where no budget is set."""
    target = inspection.expected.target or inspection.subject.label("target") or ""
    return yaml_file.load(paths.VALIDATORS / "budgets.yaml", Budgets).bytes_to_pull.get(target)


@validator("size.budget", source="validators/budgets.yaml", severity="warning", when=budget)
def test_budget(inspection: Inspection, require: Requirement) -> None:
    """The image takes no more to pull than its target's budget."""
    most, layers = budget(inspection) or 0, inspection.measured.layers
    if layers is None:
        skip_unmeasured(inspection, "layers")
    size = sum(layer.bytes for layer in layers)
    if size > sum(layer.unpacked for layer in layers):  # a tar file has its files and their headers
        skip("the engine keeps no compressed layers: what a pull takes is unknown")
    largest_layers = sorted(layers, key=lambda layer: -layer.bytes)[:MAX_SHOWN]
    largest = ", ".join(f"{layer.largest_folder} {megabytes(layer.bytes)}" for layer in largest_layers)
    require(
        size <= most,
        expected=f"at most {megabytes(most)}",
        actual=f"{megabytes(size)}; the largest layers are {largest}",
        fix="take out what the target does not need, or raise the budget in validators/budgets.yaml with a reason",
    )
