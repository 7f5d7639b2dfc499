"""Mirrors, logins and the CA bundle as BuildKit secrets, which no image keeps."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from rdma_images.build.build_spec import BuildSpec
from rdma_images.core.paths import state_folder
from rdma_images.core.source import Supply
from rdma_images.inputs import sources
from rdma_images.inputs.mirrors import Mirrors, host
from rdma_images.registry.credentials import Login, resolve_secret
from rdma_images.render import bake

SECRETS_FOLDER = "/run/secrets"  # where BuildKit mounts a secret that names no other place


@contextmanager
def secret_files(
    specs: Sequence[BuildSpec],
    supplies: Mapping[str, Sequence[Supply]],
    helper_users: Mapping[str, str],
    mirrors: Mirrors,
) -> Iterator[dict[str, dict[str, Path]]]:
    """Yield the files of secrets by target of the bake file and id; they exist inside the block.

    Args:
        supplies: By image id.
        helper_users: For each helper target, the id of the image whose secrets it gets.

    Raises:
        RefusedError: As `write_secrets`.
    """
    root = state_folder() / "secrets"
    shutil.rmtree(root, ignore_errors=True)  # of a killed build; no other runs, by the lock of builds
    root.mkdir(mode=0o700, parents=True)
    try:
        by_image = {
            spec.image.id: write_secrets(root / spec.image.id, supplies[spec.image.id], mirrors, spec.image.secrets)
            for spec in specs
        }
        by_helper = {helper: by_image[image_id] for helper, image_id in helper_users.items()}
        yield {bake.bake_target_name(image_id): files for image_id, files in by_image.items()} | by_helper
    finally:
        shutil.rmtree(root, ignore_errors=True)


def write_secrets(
    folder: Path, supplies: Iterable[Supply], mirrors: Mirrors, references: Mapping[str, str] | None = None
) -> dict[str, Path]:
    """Write the secrets of an image to a new folder; return their files by id, readable by this user.

    Always: `ca-bundle`; `uv-config`, `pip-config` and `netrc` for the package index; `apt-config`, `apt-sources` and
    `apt-auth` for the base, the same with the ending -builder for the stages that are not in the image.
    Where the addresses of a base's archives are all known, `apt-config` makes apt read `apt-sources` instead of the
    base's own sources. For an archive on top of a base's ("over"), `apt-sources` has both; where the base's own sources
    stay, it has only that archive, because the stage mounts it beside them.

    Args:
        references: The target's own secrets by id, "env:NAME" or "file:PATH".

    Raises:
        RefusedError: One of `references` does not exist.
    """
    texts = secret_texts(list(supplies), mirrors)
    for name, reference in (references or {}).items():
        texts[name] = resolve_secret(reference, named_in=f"matrix.yaml, secret {name}")
    folder.mkdir(mode=0o700)
    for name, text in texts.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(text, encoding="utf-8")
    return {"ca-bundle": mirrors.ca_bundle, **{name: folder / name for name in texts}}


def secret_texts(supplies: Sequence[Supply], mirrors: Mirrors) -> dict[str, str]:
    """Return the texts of the secrets by id, except the CA bundle."""
    logins = sources.index_for(mirrors)[1].logins
    index = next((s.address for s in supplies if s.source.kind == "index"), "")
    by_id = {
        "uv-config": f'[[index]]\nurl = "{index}"\ndefault = true\n' if index else "",
        "pip-config": f"[global]\nindex-url = {index}\n" if index else "",
        "netrc": _netrc(logins),
    }
    archives = [s for s in supplies if s.source.kind == "apt"]
    for role in sorted({s.source.role for s in archives}):
        ending = "" if role == "base" else f"-{role}"
        archives_of_role = [s for s in archives if s.source.role == role]
        roles_below = {s.source.over for s in archives_of_role}
        archives_below = [s for s in archives if s.source.role in roles_below]
        # With some addresses unknown apt would read only some archives: then the base's own sources stay.
        replaces_sources = all(s.address for s in archives_below or archives_of_role)
        listed = archives_of_role if archives_below else []
        if replaces_sources:
            listed = [*archives_below, *archives_of_role]
        by_id[f"apt-sources{ending}"] = "".join(map(_sources_list, listed))
        by_id[f"apt-config{ending}"] = _apt_config(replaces_sources)
        by_id[f"apt-auth{ending}"] = _apt_auth([*archives_below, *archives_of_role], logins)
    return by_id


def _sources_list(supply: Supply) -> str:
    """Return an archive as lines of sources.list(5), one for each suite."""
    source = supply.source
    lines = (f"deb [signed-by={source.keyring}] {supply.address} {suite}" for suite in source.suites)
    return "".join(f"{line} {source.components}\n" for line in lines)


def _apt_config(has_sources: bool) -> str:
    """Return apt.conf(5): CA bundle, logins, retries and, if wanted, our sources.

    dpkg waits for the disk at every file, so that a machine which loses its power has whole packages; of a step that
    loses it nothing is kept.
    """
    lines = [
        'DPkg::Options:: "--force-unsafe-io";',
        'Acquire::Retries "3";',
        f'Acquire::https::CaInfo "{SECRETS_FOLDER}/ca-bundle";',
        f'Dir::Etc::netrc "{SECRETS_FOLDER}/apt-auth";',
    ]
    if has_sources:
        lines += [f'Dir::Etc::sourcelist "{SECRETS_FOLDER}/apt-sources";', 'Dir::Etc::sourceparts "/dev/null";']
    return "\n".join(lines) + "\n"


def _apt_auth(archives: Iterable[Supply], logins: Mapping[str, Login]) -> str:
    """Return apt_auth.conf(5), with schemes: else apt sends no login over plain http."""
    lines = []
    for address in sorted({s.address for s in archives}):
        if login := logins.get(host(address)):
            machine = f"{urlsplit(address).scheme}://{host(address)}"
            lines.append(f"machine {machine} login {login.username} password {login.password}\n")
    return "".join(lines)


def _netrc(logins: Mapping[str, Login]) -> str:
    """Return netrc(5), which pip and uv read; it names hosts without a port."""
    return "".join(
        f"machine {name.partition(':')[0]} login {login.username} password {login.password}\n"
        for name, login in sorted(logins.items())
    )
