"""Additions of a target to an image: the user's files, variables, a user, a command."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from rdma_images.core.image import LABEL_PREFIX, AddedFile, AddedUser, Additions, Image
from rdma_images.core.yaml_file import Strict, YamlPath, must_match
from rdma_images.facts import Facts, facts_file
from rdma_images.facts.environment import Environment
from rdma_images.plan import image_settings
from rdma_images.plan.refusals import BrokenRule

WORKDIR = "/workspace"  # of an image whose target names none
# useradd(8), the default of NAME_REGEX.
USER_NAME = re.compile(r"(?!root$)[a-z_][a-z0-9_-]{0,31}")
# IEEE Std 1003.1-2017, Base Definitions, 8.1: names that all shells take.
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWNER = re.compile(r"[a-z_][a-z0-9_-]{0,31}|\d{1,9}(?::\d{1,9})?")
MODE = re.compile(r"[0-7]{3,4}")
# None of the secrets that every build has. Source: build/build_secrets.py.
SECRET_NAME = re.compile(
    r"(?!(?:ca-bundle|uv-config|pip-config|netrc|apt-(?:config|sources|auth)(?:-.*)?)$)[a-z][a-z0-9-]{0,62}"
)
REFERENCE = re.compile(r"(?:env|file):.+")
# None of the labels that this tool writes. Source: render/labels.py.
LABEL_NAME = re.compile(rf"(?!{re.escape(LABEL_PREFIX)}\.|org\.opencontainers\.image\.).*")


def _absolute(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r}: write an absolute path, without ..")
    return path


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
VariableName = Annotated[str, must_match(VARIABLE_NAME, "is no name of a variable: write letters, digits and _")]
Variables = dict[VariableName, str]
UserName = Annotated[str, must_match(USER_NAME, "cannot be made: write small letters, digits, _ and -, and not root")]
LabelName = Annotated[str, must_match(LABEL_NAME, "is written by this tool: choose another name")]
SecretName = Annotated[
    str, must_match(SECRET_NAME, "cannot name a secret: write small letters, digits and -, and not ours")
]
Owner = Annotated[str, must_match(OWNER, "is no owner: write root, UID or UID:GID")]
Mode = Annotated[str, must_match(MODE, 'is no mode: write octal digits, as in "0755"')]
# A list of words, or one text that is split as a shell does it.
Command = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda written: shlex.split(written) if isinstance(written, str) else written,
        json_schema_input_type=str | tuple[str, ...],
    ),
]


class FileEntry(Strict):
    """A file or folder of the user's that goes into the image."""

    path: str = Field(description="A file or folder, from the folder of matrix.yaml. .dockerignore holds for folders.")
    to: AbsolutePath | None = Field(
        default=None,
        description="Its path in the image; with / at the end, the folder that it goes into. By default `path` below "
        "the working directory.",
    )
    owner: Owner | None = Field(
        default=None, description="root, the target's user, UID or UID:GID; by default the user."
    )
    mode: Mode | None = Field(default=None, description='Of every file, as in "0755"; by default 0644, or 0755.')


class UserEntry(Strict):
    """The user that the image's processes run as."""

    name: UserName = Field(description="The user's name; it is made with a group of the same name.")
    uid: Annotated[int, Field(ge=1, le=2_000_000_000)] = Field(default=1000, description="Of the user and its group.")
    home: AbsolutePath | None = Field(default=None, description="By default /home/NAME.")
    keep_setuid: tuple[AbsolutePath, ...] = Field(
        default=(), description="Programs that stay setuid or setgid, as /usr/bin/sudo; all others lose that right."
    )


def _or_text(model: type[Strict], field: str) -> BeforeValidator:
    """Take a text for a mapping that has this field alone."""
    return BeforeValidator(
        lambda written: {field: written} if isinstance(written, str) else written, json_schema_input_type=str | model
    )


FileEntries = tuple[Annotated[FileEntry, _or_text(FileEntry, "path")], ...]
User = Annotated[UserEntry, _or_text(UserEntry, "name")]


def _shell_line(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty: write one line for a shell")
    return text


class TargetAdditions(Strict):
    """The fields of a target that add the user's own work to an image."""

    files: FileEntries = Field(default=(), description="Files and folders beside matrix.yaml that go into the image.")
    env: Variables = Field(default_factory=dict, description="Environment variables of the image.")
    user: User | None = Field(default=None, description="A user that is made, and that processes run as.")
    workdir: AbsolutePath | None = Field(default=None, description=f"The working directory; by default {WORKDIR}.")
    entrypoint: Command | None = Field(default=None, description="The entry point, as a list or a line of shell words.")
    command: Command | None = Field(default=None, description="The default command, as a list or a line.")
    labels: dict[LabelName, str] = Field(default_factory=dict, description="Labels of the image.")
    secrets: dict[SecretName, str] = Field(
        default_factory=dict,
        description="Secrets of stages, by id: env:NAME or file:PATH. A RUN mounts one; no layer has it.",
    )
    checks: tuple[Annotated[str, AfterValidator(_shell_line)], ...] = Field(
        default=(),
        description="Commands, each a line for a shell, that must succeed in the image when it is validated.",
    )

    def addition_problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield what is wrong with the additions, as (place, sentence)."""
        for number, entry in enumerate(self.files):
            yield from ((("files", number, *steps), sentence) for steps, sentence in _file_problems(entry, self.user))
        if "PATH" in self.env:
            yield ("env", "PATH"), "PATH leads to the image's Python: name programs of your own by their paths"
        for name, reference in self.secrets.items():
            if not REFERENCE.fullmatch(reference):
                yield ("secrets", name), "a secret is never written here, only where it is: env:NAME or file:PATH"


def additions(target: TargetAdditions, workdir: str | None) -> Additions | None:
    """Return what a target adds; None for a target that adds nothing.

    Args:
        target: The fields of the matrix.
        workdir: The working directory that the image has already; None for one that is built here.
    """
    fields = (target.files, target.env, target.user, target.workdir, target.entrypoint, target.command, target.labels)
    if not any(fields):
        return None
    workdir = target.workdir or workdir or WORKDIR
    user = None
    if entry := target.user:
        user = AddedUser(entry.name, entry.uid, entry.home or f"/home/{entry.name}", entry.keep_setuid)
    return Additions(
        files=tuple(_added_file(entry, workdir, user) for entry in target.files),
        environment=dict(target.env),
        user=user,
        workdir=workdir,
        entrypoint=target.entrypoint,
        command=target.command,
        labels=dict(target.labels),
    )


def broken_rules(image: Image, facts: Facts) -> Iterator[BrokenRule]:
    """Yield why a target's variables would disable the image's fabric."""
    if image.additions is None:
        return
    variables = image.additions.environment
    harmful = dict(_harmful(image, variables))
    yield from harmful.values()
    networks = {name.lower() for component in image.components.values() for name in component.details.networks}
    for name, value in variables.items():
        required = image.environment.get(name)
        is_same_network = name == image_settings.NETWORK and value.lower() in networks
        if required is not None and value != required and not is_same_network and name not in harmful:
            reason = (
                f"env sets {name}={value}, and the image sets {name}={required}, so that NCCL ends with an error "
                "where the fabric is not there\nleave it out, or --set fallback=allow for an image that may use TCP"
            )
            source = facts.running.required_networks[image.fabric]
            yield BrokenRule("own-environment", {}, reason, facts.running.cite(source))


def notes(image: Image) -> Iterator[str]:
    """Yield what may go wrong by a target's variables, and what takes a server's transfers off the fabric."""
    facts = facts_file.read(Environment)
    variables = image.additions.environment if image.additions else {}
    versions = {name: component.version for name, component in image.components.items()}
    reasons = {
        row.name: row.why
        for row in facts.transfers.values()
        if row.fabric == image.fabric and variables.get(row.name, row.value) != row.value
    }
    for row in facts.variables.values():
        if not row.command and row.applies_to(variables, image.fabric, versions):
            reasons[row.name] = row.why
    for name, why in reasons.items():
        yield f"{image.target}: env sets {name}={variables[name]}: {why}\n  leave it out"


def _harmful(image: Image, variables: Mapping[str, str]) -> Iterator[tuple[str, BrokenRule]]:
    """Yield the variables that facts/environment.yaml calls harmful, as broken rules."""
    facts = facts_file.read(Environment)
    versions = {name: component.version for name, component in image.components.items()}
    for row in facts.variables.values():
        is_certain = row.effect == "harmful" and not row.uncertain and not row.gpus
        if is_certain and row.applies_to(variables, image.fabric, versions):
            reason = f"env sets {row.name}={variables[row.name]}: {row.why}\nleave it out"
            yield row.name, BrokenRule("own-environment", {}, reason, facts.cite(row))


def _file_problems(entry: FileEntry, user: UserEntry | None) -> Iterator[tuple[YamlPath, str]]:
    """Yield (path, sentence) for each problem of a file that a target adds."""
    if entry.path.startswith("/") or ".." in entry.path.split("/"):
        yield ("path",), f"{entry.path!r} is outside of the folder: copy it here, or mount it when the image runs"
    if entry.owner and entry.owner[0] not in "0123456789" and entry.owner not in ("root", user and user.name):
        fix = f"write root, {user.name}, UID or UID:GID" if user else "write root, UID or UID:GID, or add `user:`"
        yield ("owner",), f"{entry.owner!r} is no user of the image: {fix}"


def _added_file(entry: FileEntry, workdir: str, user: AddedUser | None) -> AddedFile:
    path = posixpath.normpath(entry.path)
    target = entry.to or posixpath.join(workdir, path)
    destination = posixpath.join(target, posixpath.basename(path)) if target.endswith("/") else target
    return AddedFile(path, posixpath.normpath(destination), _ids(entry.owner, user), entry.mode or "")


def _ids(owner: str | None, user: AddedUser | None) -> tuple[int, int]:
    """Return the numbers of an owner and its group."""
    if owner is None:
        return (user.uid, user.uid) if user else (0, 0)
    if owner[0] in "0123456789":
        uid, _, gid = owner.partition(":")
        return int(uid), int(gid or uid)
    return (user.uid, user.uid) if user and owner == user.name else (0, 0)
