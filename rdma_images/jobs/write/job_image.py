"""The image that a job runs, by digest, and the starters in it."""

import posixpath
import re
from collections.abc import Mapping

from rdma_images.components import nccl_tests
from rdma_images.components.nccl_tests import NcclTestsDetails
from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.core.image import Image
from rdma_images.core.paths import COMMAND
from rdma_images.core.step_files import BUILD
from rdma_images.facts import Facts
from rdma_images.facts.launchers import Starter
from rdma_images.jobs.check import image_reports
from rdma_images.jobs.write import rank_starters
from rdma_images.jobs.write.work import Launch
from rdma_images.publish import publication

DIGEST = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)+(:[\w.-]+)?@sha256:[0-9a-f]{64}")


# The component of an image that starts ranks.
STARTER_COMPONENTS: Mapping[Starter, str] = {"mpirun": nccl_tests.NAME, "torchrun": "pytorch"}


def resolve_reference(image: Image, requested: str, pattern: str | None, tcp: bool = False) -> tuple[str, str]:
    """Return the image as "host/repository@sha256:…", and the source of that.

    `requested` is the user's reference, `pattern` what the launcher takes. A job over TCP may run the image of this
    machine's engine, also a rehearsal: it needs no fabric.

    Raises RefusedError for an image by tag, one that is not published or is a rehearsal, and one that the launcher
    cannot have.
    """
    build = BUILD.read_if_valid(image.id)
    record = publication.PUBLICATION.read_if_valid(image.id)
    if tcp and not requested and build and (record is None or record.rehearsal or not record.copies):
        return f"{build.ref.rpartition(':')[0]}@{build.digest}", f"build.json of {image.id}: it is in this engine alone"
    refs, source = ([requested], "--image") if requested else (_published(image), f"publication.json of {image.id}")
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
    if "-rehearsal@" in matches[0] or (build and build.rehearsal and matches[0].endswith(f"@{build.digest}")):
        raise RefusedError(
            f"{matches[0]} is a rehearsal: its stand-ins have no fabric\nbuild it without --rehearse, or add --tcp"
        )
    return matches[0], source


def _published(image: Image) -> list[str]:
    """Return where publication.json says that the image is."""
    record = publication.PUBLICATION.read_if_valid(image.id)
    if record and record.rehearsal:
        raise RefusedError(
            f"{image.id} is a rehearsal: its stand-ins have no fabric\nbuild it without --rehearse, or add --tcp"
        )
    if record is None or not record.copies:
        raise RefusedError(
            f"{image.id} is not published\n"
            f"{COMMAND} publish --target {image.target} --to REGISTRY, or give --image host/repository@sha256:…"
        )
    return [copy.ref for copy in record.copies.values()]


def starters(image: Image, launch: Launch | None = None) -> tuple[Starter, ...]:
    """Return what can start ranks in the image: torchrun with PyTorch, or mpirun.

    `launch` is the user's choice. torchrun stands for every program that is started once on each node. An image without
    a target has unknown contents: what is chosen is assumed, and `reported_environment` looks for mpirun's parts.
    """
    names: list[Starter] = []
    if (
        launch == "mpirun"
        if not image.components
        else nccl_tests.NAME in image.components and launch in (None, "mpirun")
    ):
        names.append("mpirun")
    if ("pytorch" in image.components or not image.components or launch in ("ray", "plain")) and launch != "mpirun":
        names.append("torchrun")
    return tuple(names)


def mpirun(image: Image) -> str:
    """Return the image's mpirun; the EFA installer's needs its whole path on other nodes."""
    if not image.components:
        return "mpirun"  # the first on the PATH that the job hands on
    details = _nccl_tests(image)
    return "mpirun" if details.mpi_packages else f"{details.mpi}/bin/mpirun"


def reported_environment(reference: str) -> dict[str, str]:
    """Return the variables of an image without a target, which ssh does not hand on.

    Raises RefusedError where no report shows that the image has Open MPI and ssh, and runs as root.
    """
    report = image_reports.report(reference)
    libraries = image_reports.libraries(reference)
    if report is None or report.inspection is None or libraries is None:
        raise RefusedError(
            f"{reference}: nothing here says whether mpirun can start ranks in it, nor which variables it sets\n"
            f"{COMMAND} validate --image {reference}, then this again; or choose another --launch"
        )
    config = report.inspection.subject
    names = {posixpath.basename(path) for path in libraries}
    needed_programs = {"mpirun": {"mpirun"}, "Open MPI's orted or prted": {"orted", "prted"}}
    needed_programs.update({"ssh": {"ssh"}, "sshd": {"sshd"}})
    missing = [name for name, programs in needed_programs.items() if not programs & names]
    if missing or not any(f"{folder}/mpirun" in libraries for folder in config.environment.get("PATH", "").split(":")):
        raise RefusedError(
            f"{reference} has no {', no '.join(missing or ['mpirun on its PATH'])}, by its report\n"
            "install Open MPI, openssh-client and openssh-server in it, or choose another --launch"
        )
    if config.user not in ("", "0", "root"):
        raise RefusedError(
            f"{reference} runs as {config.user}, and mpirun's sshd is started by root in an image without a target\n"
            "choose another --launch, or make the image a target of matrix.yaml with its user"
        )
    return dict(config.environment)


def _nccl_tests(image: Image) -> NcclTestsDetails:
    """Return the details of the image's nccl-tests."""
    details = image.components[nccl_tests.NAME].details
    assert isinstance(details, NcclTestsDetails)
    return details


def rank_command(
    image: Image, starter: Starter, launch: Launch | None, arguments: tuple[str, ...], facts: Facts
) -> tuple[str, ...]:
    """Return what each rank runs, or what follows the launcher's own options on each node.

    It is the user's command, or the measurement that the image is for.

    Raises RefusedError for a command that starts ranks itself, for a program that nccl-tests does not have, and where
    there is none.
    """
    if arguments and not arguments[0].strip():
        raise RefusedError("the command begins with an empty word\nwrite the program first, as in -- train.py")
    if launch not in ("plain", "ray"):
        rank_starters.refuse(arguments, facts.launchers.rank_starters)
    if starter == "torchrun":
        return _once_a_node(image, launch, arguments)
    if not image.components:
        return arguments or _once_a_node(image, launch, arguments)
    nccl_tests_facts, (folder,) = facts.nccl_tests, _nccl_tests(image).bin
    program, *options = arguments or (nccl_tests_facts.measure.program, *nccl_tests_facts.measure.arguments)
    if "/" in program:
        name = program.removeprefix(f"{folder}/")
        if program.startswith(f"{folder}/") and name not in nccl_tests_facts.programs.names:
            raise RefusedError(f"{program} is not in the image\n{suggestion(name, nccl_tests_facts.programs.names)}")
        return arguments
    if program not in nccl_tests_facts.programs.names:
        raise RefusedError(
            f"{program} is not in the image\n{suggestion(program, nccl_tests_facts.programs.names)}\n"
            "a program of another package needs its whole path"
        )
    return (f"{folder}/{program}", *options)


def _once_a_node(image: Image, launch: Launch | None, arguments: tuple[str, ...]) -> tuple[str, ...]:
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
