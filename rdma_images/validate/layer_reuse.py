"""Measurements of an image, reused for one that differs in its topmost layer alone, as by a changed script.

Importing torch, walking the tree, reading packages and starting tools and the network plugin take most of a validation.
They are left out only where that layer holds nothing that they read, beside files of a user, which are measured anew.
"""

import json
import tarfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rdma_images.core import atomic
from rdma_images.core.paths import state_folder
from rdma_images.engine import Engine
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import (
    Files,
    ImportedTorch,
    Leftovers,
    Measured,
    MeasuredPackages,
    PackageContents,
    StartedNetwork,
    Tree,
)
from rdma_images.inspection.values import MeasuredValue, ToolRun
from rdma_images.validate import image_layers, probing
from rdma_images.validate.probes import tree

WHITEOUT = ".wh."  # removes what lower layers have, see the OCI image specification


class EarlierMeasurement(MeasuredValue):
    """The measurements of an image whose topmost layer is harmless.

    `user_files` are those of the tree that are below tree.USER_FOLDERS; `request` is what the network probe was asked.
    What is None has to be measured.
    """

    torch: ImportedTorch
    tree: Tree | None
    user_files: Files | None
    request: dict[str, Any] | None
    network: StartedNetwork | None
    packages: MeasuredPackages | None = None
    contents: PackageContents | None = None
    tools: dict[str, ToolRun] | None = None

    @property
    def values(self) -> dict[str, Any]:
        """Return the measurements that hold for the other image, by probe, but the tree."""
        values = {name: getattr(self, name) for name in ("torch", "packages", "contents", "tools")}
        return {name: value for name, value in values.items() if value is not None}

    def network_for(self, request: Mapping[str, Any]) -> StartedNetwork | None:
        """Return what the plugins do, where the same was asked of them."""
        return self.network if self.request == json.loads(json.dumps(request)) else None

    def tree_with(self, user_files: Files) -> Tree | None:
        """Return the tree with these files of a user; None where it has to be measured."""
        if not self.tree or not self.user_files:
            return None
        return self.tree.model_copy(update={"files": _replace_files(self.tree.files, self.user_files, user_files)})


def find(engine: Engine, image_config: ImageConfig) -> EarlierMeasurement | None:
    """Return what was measured in an image with the same lower layers.

    Returns:
        None where it may differ in this image.
    """
    try:
        earlier = EarlierMeasurement.model_validate_json(_file(image_config).read_bytes())
    except (OSError, ValidationError):
        return None
    return earlier if _is_unrelated(engine, image_config, earlier.torch) else None


def save(engine: Engine, image_config: ImageConfig, measured: Measured, request: Mapping[str, Any] | None) -> None:
    """Keep an image's measurements for others with its lower layers.

    Nothing is kept where its topmost layer mattered.
    """
    torch, user_files = measured.torch, measured.user_files
    if not torch or not _is_unrelated(engine, image_config, torch):
        return
    is_exact = measured.tree and user_files and is_separable(measured.tree.files)
    has_users_programs = any(map(_is_users, image_config.environment.get("PATH", "").split(":")))
    reusable = Measured() if has_users_programs else measured
    earlier = EarlierMeasurement(
        torch=torch,
        tree=measured.tree if is_exact else None,
        user_files=user_files if is_exact else None,
        request=dict(request) if request and measured.network else None,
        network=measured.network,
        packages=reusable.packages,
        contents=reusable.contents,
        tools=reusable.tools,
    )
    atomic.write(_file(image_config), earlier.model_dump_json())


def is_harmless(member: tarfile.TarInfo, searched: Sequence[str]) -> bool:
    """Return whether a member of a layer changes nothing that was `searched`.

    Nor may it change anything of a fabric. It then is a file, folder or link below tree.USER_FOLDERS, or one of these,
    and removes nothing.
    """
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    is_plain = member.isfile() or member.isdir() or member.issym()
    if not is_plain or not parts or f"/{parts[0]}" not in tree.USER_FOLDERS:
        return False
    if len(parts) == 1:
        return member.isdir() and member.mode & 0o005 == 0o005
    path = "/" + "/".join(parts)
    overlaps = any(_is_below(path, searched_path) or _is_below(searched_path, path) for searched_path in searched)
    return not overlaps and not parts[-1].startswith(WHITEOUT) and not tree.concerns_fabric(path)


def _is_unrelated(engine: Engine, image_config: ImageConfig, torch: ImportedTorch) -> bool:
    if not torch.searched:  # measured before it was known
        return False
    try:
        return image_layers.topmost_holds_only(engine, image_config, lambda member: is_harmless(member, torch.searched))
    except Exception:  # a damaged layer has its own check, see measuring
        return False


def is_separable(files: Files) -> bool:
    """Return whether users' files can be taken out of a tree.

    They cannot with a library below tree.USER_FOLDERS, or a list that was cut short.
    """
    lists = (files.world_writable, files.set_user_id, *(reasons for _, reasons in files.leftovers))
    paths = (*files.libraries, *files.sizes)
    return all(len(entries) < tree.MAX_ENTRIES for entries in lists) and not any(map(_is_users, paths))


def _replace_files(files: Files, old_files: Files, new_files: Files) -> Files:
    """Return `files` with other ones below tree.USER_FOLDERS."""
    sizes = sorted({**files.sizes, **new_files.sizes}.items(), key=lambda pair: -pair[1])[: tree.MAX_SIZES]
    leftovers = {
        kind: dict(sorted(({p: why for p, why in reasons.items() if not _is_users(p)} | dict(new_reasons)).items()))
        for (kind, reasons), (_, new_reasons) in zip(files.leftovers, new_files.leftovers, strict=True)
    }
    return Files(
        count=files.count - old_files.count + new_files.count,
        bytes=files.bytes - old_files.bytes + new_files.bytes,
        libraries=files.libraries,
        sizes=dict(sizes),
        leftovers=Leftovers.model_validate(leftovers),
        world_writable=sorted([*(p for p in files.world_writable if not _is_users(p)), *new_files.world_writable]),
        set_user_id=sorted([*(p for p in files.set_user_id if not _is_users(p)), *new_files.set_user_id]),
    )


def _is_users(path: str) -> bool:
    return any(_is_below(path, folder) for folder in tree.USER_FOLDERS)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _file(image_config: ImageConfig) -> Path:
    code = [probing.payload(), Path(__file__).read_text(encoding="utf-8")]
    decides = [code, image_config.platform, image_config.layers[:-1], image_config.environment, image_config.user]
    key = sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return state_folder() / "lower-layers" / f"{key}.json"
