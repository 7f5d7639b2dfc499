"""An image to build, with everything that decides its bytes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from rdma_images.build import preflight_folder, project_files, stand_ins
from rdma_images.core import atomic, paths
from rdma_images.core.compression import Compression
from rdma_images.core.image import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.source import Source
from rdma_images.engine.debian import bootstrap
from rdma_images.facts import Facts
from rdma_images.inputs import availability, lock, sources
from rdma_images.inputs.locked_image import LockedImage, lock_image
from rdma_images.inputs.project import Project
from rdma_images.inputs.wheels import Lock
from rdma_images.layers.recipe import layer_recipe
from rdma_images.plan import planner
from rdma_images.render import dockerfiles, wheel_layers


@dataclass(frozen=True)
class BuildSpec:
    """An image and its inputs: bases, packages, and `other_inputs`, a digest of the rest."""

    image: Image
    lock: Lock
    facts: Facts = field(repr=False)
    other_inputs: str
    bases: frozenset[tuple[str, str]] = frozenset()
    packages: Mapping[str, str] = field(default_factory=dict)  # of no index: the digest of their files, by name
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of matrix.yaml and of the locks, by path

    @property
    def inputs(self) -> str:
        """Return the digest of all inputs; an image of equal ones is not built again."""
        bases = {bootstrap.key(*base_key): bootstrap.last_bootstrapped(*base_key) for base_key in self.bases}
        return input_digest(
            {"others": self.other_inputs, "bases": {name: base.tar for name, base in bases.items() if base}}
        )

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Return all downloads of the image; asking uv and pip for the index takes 0.5 s."""
        return sources.sources(self.image, self.facts)

    @property
    def dockerfile(self) -> Path:
        """Return the file of its rendered Dockerfile."""
        return paths.image_folder(self.image.id) / "Dockerfile"


def build_spec(
    image: Image,
    project: Project,
    rehearse: bool = False,
    compression: Compression = "zstd",
    progress: Progress = silent,
) -> BuildSpec:
    """Return the build spec of `image`: locks it, and writes its plan.json, its Dockerfile and the files beside it."""
    return _write_spec(lock_image(image, project, rehearse, progress), project.facts, rehearse, compression)


def _write_spec(locked: LockedImage, facts: Facts, rehearse: bool, compression: Compression) -> BuildSpec:
    """Render and write what the build of an image reads; return the spec, with the digest of all inputs."""
    image, wheels = locked.image, locked.wheels
    pinned = sources.pinned(image, facts)
    dockerfile = dockerfiles.render(image, wheels, locked.toolkit, lock.tools())
    replaced = {stand_ins.folder_name(source) for source in pinned if availability.has_stand_in(source)}
    packages = project_files.package_digests(image, wheels)
    input_values = {
        "dockerfile": dockerfile,
        "pins": {source.id: source.pin for source in pinned},
        "platform": image.platform,
        "settings": {setting.name: setting.value for setting in image.run_settings},
        "compression": compression,
        "preflight": preflight_folder.version(),
        "layers": [layer_recipe(layer, compression).key for layer in wheel_layers.wheel_layers(wheels)],
        "stand-ins": stand_ins.combined_digest(replaced) if rehearse else None,
        "files": project_files.pack(image),
        "folder": project_files.folder_digest(".") if project_files.uses_folder(dockerfile) else None,
        "packages": packages,
    }
    preflight_folder.pack(image)
    planner.write(image)
    atomic.write(paths.image_folder(image.id) / "Dockerfile", dockerfile)
    bases = frozenset((source.bootstrap, source.platform) for source in pinned if source.bootstrap)
    return BuildSpec(image, wheels, facts, input_digest(input_values), bases, packages, _file_digests(image))


def _file_digests(image: Image) -> dict[str, str]:
    """Return the SHA-256 of matrix.yaml and of the image's existing locks."""
    requests = (lock.lock_request(image), lock.toolkit_request(image))
    names = [f"locks/python/{lock.lock_path(request).name}" for request in requests]
    files = {"matrix.yaml": paths.MATRIX} | {name: paths.find_data(name) for name in names}
    return {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items() if path.is_file()}


def input_digest(inputs: object) -> str:
    """Return the digest of everything that decides the bytes of an image."""
    return f"sha256:{sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()}"
