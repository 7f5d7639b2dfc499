"""The image that a job runs, by digest, and the rank starters in it."""

import re
from collections.abc import Mapping
from itertools import pairwise

from rdma_images.components import nccl_tests
from rdma_images.components.nccl_tests import NcclTestsDetails
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import KnownImage
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.facts import Facts
from rdma_images.facts.launchers import RankStarter
from rdma_images.jobs.write.job_settings import Launch
from rdma_images.publish import publication

DIGEST = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)+(:[\w.-]+)?@sha256:[0-9a-f]{64}")


# Programs and modules that start ranks themselves.
RANK_STARTERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun", "composer")
RANK_STARTER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
# The component of an image that starts ranks.
RANK_STARTER_COMPONENTS: Mapping[RankStarter, str] = {"mpirun": nccl_tests.NAME, "torchrun": "pytorch"}


def resolve_reference(image: KnownImage, requested: str, pattern: str | None, tcp: bool = False) -> tuple[str, str]:
    """Return the image as "host/repository@sha256:…", and the source of that.

    `requested` is the user's reference, `pattern` what the launcher takes. A job over TCP may run the image of this
    machine's engine, also a rehearsal: it needs no fabric.

    Raises RefusedError for an image by tag, one that is not published or is a rehearsal, and one that the launcher
    cannot have.
    """
    build = BUILD_FILE.read_if_valid(image.id)
    record = publication.PUBLICATION.read_if_valid(image.id)
    if tcp and not requested and build and (record is None or record.stand_ins or not record.copies):
        return f"{build.ref.rpartition(':')[0]}@{build.digest}", f"build.json of {image.id}: it is in this engine alone"
    refs, source = ([requested], "image") if requested else (_published(image), f"publication.json of {image.id}")
    matches = [ref for ref in refs if pattern is None or re.fullmatch(pattern, ref)]
    if not matches:
        raise RefusedError(
            f"{', '.join(refs)}: this launcher only takes images that match {pattern}\npublish there first"
        )
    if len(matches) > 1:
        raise RefusedError(
            f"{image.id} is in {len(matches)} registries\nname one of them: --image {' or '.join(matches)}"
        )
    if not DIGEST.fullmatch(matches[0]):
        raise RefusedError(
            f"--image {requested}: a tag can be moved while the job starts on its nodes\n"
            "name it as host/repository@sha256:…; publication.json or `docker buildx imagetools inspect` has the digest"
        )
    if "-rehearsal@" in matches[0] or (build and build.stand_ins and matches[0].endswith(f"@{build.digest}")):
        raise _rehearsal_error(matches[0])
    return matches[0], source


def _published(image: KnownImage) -> list[str]:
    """Return where publication.json says that the image is."""
    record = publication.PUBLICATION.read_if_valid(image.id)
    if record and record.stand_ins:
        raise _rehearsal_error(image.id)
    if record is None or not record.copies:
        raise RefusedError(
            f"{image.id} is not published\n"
            f"{COMMAND} publish --target {image.target} --to REGISTRY, or give --image host/repository@sha256:…"
        )
    return [copy.ref for copy in record.copies.values()]


def _rehearsal_error(image: str) -> RefusedError:
    return RefusedError(
        f"{image} is a rehearsal: its stand-ins have no fabric\nbuild it without --rehearse, or add --field tcp=true"
    )


def rank_starters(image: KnownImage, launch: Launch | None = None) -> tuple[RankStarter, ...]:
    """Return what can start ranks in the image: torchrun with PyTorch, or mpirun.

    `launch` is the user's choice. torchrun stands for every program that is started once on each node. An image without
    a target has unknown contents: what is chosen is assumed.
    """
    names: list[RankStarter] = []
    if (
        launch == "mpirun"
        if not image.components
        else nccl_tests.NAME in image.components and launch in (None, "mpirun")
    ):
        names.append("mpirun")
    if ("pytorch" in image.components or not image.components or launch in ("ray", "plain")) and launch != "mpirun":
        names.append("torchrun")
    return tuple(names)


def mpirun(image: KnownImage) -> str:
    """Return the image's mpirun; the EFA installer's needs its whole path on other nodes."""
    if not image.components:
        return "mpirun"  # the first on the PATH that the job hands on
    details = _nccl_tests(image)
    return "mpirun" if details.mpi_packages else f"{details.mpi}/bin/mpirun"


def _nccl_tests(image: KnownImage) -> NcclTestsDetails:
    """Return the details of the image's nccl-tests."""
    details = image.components[nccl_tests.NAME].details
    assert isinstance(details, NcclTestsDetails)
    return details


def rank_command(
    image: KnownImage, rank_starter: RankStarter, launch: Launch | None, arguments: tuple[str, ...], facts: Facts
) -> tuple[str, ...]:
    """Return what each rank runs, or what follows the launcher's own options on each node.

    It is the user's command, or the measurement that the image is for.

    Raises RefusedError for a command that starts ranks itself, and where there is none.
    """
    if arguments and not arguments[0].strip():
        raise RefusedError("the command begins with an empty word\nwrite the program first, as in -- train.py")
    if launch not in ("plain", "ray"):
        _refuse_rank_starter(arguments)
    if rank_starter == "torchrun":
        return _once_a_node(image, launch, arguments)
    if not image.components:
        return arguments or _once_a_node(image, launch, arguments)
    measure = facts.nccl_tests.measure
    program, *options = arguments or (measure.program, *measure.arguments)
    return arguments if "/" in program else (f"{_nccl_tests(image).program_folders[0]}/{program}", *options)


def _refuse_rank_starter(command: tuple[str, ...]) -> None:
    """Raise RefusedError for a command that starts ranks itself: each rank would start as many again."""
    name = command[0].rpartition("/")[2] if command else ""
    module = next((after for word, after in pairwise(command) if word == "-m"), "")
    if name in RANK_STARTERS or (name.startswith("python") and module in RANK_STARTER_MODULES):
        raise RefusedError(
            f"{name}: the launcher starts the ranks itself\n"
            "after -- give only what each rank runs, as in -- train.py; or choose --field launch=plain"
        )


def _once_a_node(image: KnownImage, launch: Launch | None, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command after the launcher's own options: a script, a module, or any program."""
    if not arguments:
        raise RefusedError(
            f"nothing to run in {image.id}\nafter -- give what each rank runs, as in -- train.py --epochs 3"
        )
    if launch in ("plain", "ray"):
        return ("python3", *arguments) if arguments[0].endswith(".py") else arguments
    if arguments[0] in ("python", "python3") and len(arguments) > 1:
        arguments = arguments[1:]
    if launch in ("accelerate", "deepspeed"):
        return arguments  # beginning with options of the launcher, which are the user's
    return arguments if arguments[0].endswith(".py") or arguments[0] == "-m" else ("--no-python", *arguments)
