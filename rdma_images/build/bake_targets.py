"""What BuildKit is told to build: the images of a bake file, and the contexts that they take files from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rdma_images.build import build_record, preflight_folder, project_files, stand_ins
from rdma_images.build.build_spec import BuildSpec
from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.core.progress import Progress, silent
from rdma_images.core.source import Supply
from rdma_images.engine.debian import bootstrap
from rdma_images.facts import Facts
from rdma_images.inputs.project import Project
from rdma_images.render import bake, labels
from rdma_images.render.bake import HelperTarget, bootstrap_helper


@dataclass
class Contexts:
    """The contexts of one bake file; images share the helper targets they need."""

    facts: Facts
    downloads: Mapping[str, Path]  # the verified download of a source, alone in a folder, by the source's id
    progress: Progress = silent
    helpers: dict[str, HelperTarget] = field(default_factory=dict)
    # Helper target -> id of the image whose secrets it gets: the first image that uses it.
    users: dict[str, str] = field(default_factory=dict)

    def for_image(self, image: Image, supplies: Sequence[Supply]) -> dict[str, str]:
        """Return the contexts of an image's Dockerfile by name, in BuildKit's notation."""
        with_context = [supply for supply in supplies if supply.source.context]
        bases = {
            str(supply.source.context): self._base(supply, image)
            for supply in with_context
            if supply.source.kind == "base"
        }
        supplied = [supply for supply in with_context if supply.source.kind != "base"]
        distribution = {}
        if image.onto and any(supply.via == "stand-in" for supply in supplied):
            # Stand-ins are made on the distribution alone: an image that exists may have another user, and no shell.
            # The image names it, too, and reads nothing of it: buildx before 0.17 keeps a target's session only until
            # the targets that name it begin (`calculateChildTargets` in its build/build.go). A cached stand-in, which
            # asks for the root file system after that, would end with "only one connection allowed".
            distribution = {"distribution": self._distribution(image)}
        made_on = distribution.get("distribution", bases["base"])
        downloads = {str(supply.source.context): self._download(supply, image, made_on) for supply in supplied}
        return bases | downloads | distribution

    def _base(self, supply: Supply, image: Image) -> str:
        if supply.via not in ("bootstrap", "stand-in"):
            return supply.address
        platform = supply.source.platform
        tar = bootstrap.base_tar(supply.address, self.progress, platform)
        if supply.via == "stand-in" and supply.source.laid_over:
            return self._add(image, stand_ins.base_target(supply.source, image, self.facts, tar))
        return self._add(image, bootstrap_helper(str(supply.source.context), supply.address, tar, platform))

    def _download(self, supply: Supply, image: Image, base: str) -> str:
        source = supply.source
        if supply.via != "stand-in":
            return str(self.downloads[source.id])
        return self._add(image, stand_ins.stand_in(source, image, self.facts, base))

    def _distribution(self, image: Image) -> str:
        base = image.axes["base"]
        if self.facts.bases.bases[base].kind != "bootstrap":
            raise RefusedError(
                f"--rehearse: stand-ins for an image on {base} cannot be made here, only for one on Debian\n"
                "build without --rehearse, where the sources answer"
            )
        tar = bootstrap.base_tar(base, self.progress, image.platform)
        return self._add(image, bootstrap_helper("base", base, tar, image.platform))

    def _add(self, image: Image, helper: HelperTarget) -> str:
        self.helpers[helper.name] = helper
        self.users.setdefault(helper.name, image.id)
        return f"target:{helper.name}"


def image_targets(
    specs: Sequence[BuildSpec],
    supplies: Mapping[str, Sequence[Supply]],
    contexts: Contexts,
    project: Project,
    revision: labels.Revision,
    progress: Progress = silent,
) -> list[bake.ImageTarget]:
    """Return the images of the bake file; `supplies` are by image id."""
    targets = []
    for spec in specs:
        stand_ins = build_record.stand_ins_of(spec.image, supplies[spec.image.id])
        summary = project.matrix.target(spec.image.target).summary
        by_name = contexts.for_image(spec.image, supplies[spec.image.id])
        by_name |= project_files.package_contexts(spec.image, spec.lock, project.mirrors, progress)
        if project_files.uses_folder(spec.dockerfile.read_text(encoding="utf-8")):
            by_name[project_files.CONTEXT] = str(paths.PROJECT)
        targets.append(
            bake.ImageTarget(
                image=spec.image,
                dockerfile=spec.dockerfile,
                ref=build_record.local_reference(spec.image, stand_ins),
                contexts=by_name,
                labels=preflight_folder.label()
                | labels.image_labels(spec.image, summary, revision, stand_ins, spec.lock),
                created=revision.time,
            )
        )
    return targets
