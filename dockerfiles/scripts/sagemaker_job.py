"""A SageMaker training job as its container finds it: the configuration, source and program under /opt/ml."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

# What starts processes in another way than torchrun.
REFUSED = (
    "sagemaker_mpi_enabled",
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_parameter_server_enabled",
    "sagemaker_multi_worker_mirrored_strategy_enabled",
)


class JobError(Exception):
    """A job that cannot be started: what is wrong with it and, on a line of its own, what to do."""


@dataclass(frozen=True)
class TrainingJob:
    """What SageMaker says of the job to one of its hosts; `hosts` are sorted, so that all agree on who is first."""

    ml: Path
    hosts: tuple[str, ...]
    current: str
    interface: str
    resources: Mapping[str, object]
    channels: Mapping[str, object]
    settings: Mapping[str, object]  # hyperparameters that are meant for us: sagemaker_program and the like
    hyperparameters: Mapping[str, object]


def read_job(ml: Path) -> TrainingJob:
    """Return the job whose configuration is under `ml`. Raises JobError where it is missing or cannot be right."""
    config = ml / "input" / "config"
    file = config / "resourceconfig.json"
    if not file.exists():
        raise JobError(
            f"{file} is missing.\nSageMaker writes it: start this image as a training job, or write it with hosts."
        )
    resources = read_object(file)
    hosts, current = resources.get("hosts"), resources.get("current_host")
    if not isinstance(hosts, list) or not hosts or not all(isinstance(host, str) and host for host in hosts):
        raise JobError(f"{file}: hosts is {hosts!r}.\nIt has to be the list of the job's host names.")
    if current not in hosts:
        raise JobError(
            f"{file}: current_host {current!r} is none of the hosts {', '.join(hosts)}.\nCorrect one of them."
        )
    given = {name: decoded(value) for name, value in read_object(config / "hyperparameters.json").items()}
    ours = {name for name in given if name.startswith("sagemaker_") or name == "_tuning_objective_metric"}
    return TrainingJob(
        ml=ml,
        hosts=tuple(sorted(hosts)),
        current=str(current),
        interface=str(resources.get("network_interface_name") or "eth0"),
        resources=resources,
        channels=read_object(config / "inputdataconfig.json"),
        settings={name: given[name] for name in ours},
        hyperparameters={name: value for name, value in given.items() if name not in ours},
    )


def read_object(file: Path) -> dict[str, object]:
    """Return the JSON object of a file; empty where there is no file. Raises JobError for anything else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except ValueError as error:
        raise JobError(f"{file} is no JSON: {error}.\nCorrect the file.") from None
    if not isinstance(content, dict):
        raise JobError(f"{file} holds {type(content).__name__}.\nIt has to hold an object.")
    return content


def decoded(value: object) -> object:
    """Return the value of a hyperparameter: SageMaker has them all as strings, and its SDK writes JSON into them."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def arguments(job: TrainingJob) -> list[str]:
    """Return the hyperparameters as the program's arguments, in the order of their names."""
    words: list[str] = []
    for name, value in sorted(job.hyperparameters.items()):
        text = ",".join(f"{k}={v}" for k, v in sorted(value.items())) if isinstance(value, dict) else value
        words += [f"--{name}" if len(name) > 1 else f"-{name}", "" if text is None else str(text)]
    return words


def variables(job: TrainingJob, program: str, source: Path, gpus: int) -> dict[str, str]:
    """Return the SM_* variables, as sagemaker-training-toolkit's ENVIRONMENT_VARIABLES.md has them."""
    paths = {
        "model_dir": job.ml / "model",
        "input_dir": job.ml / "input",
        "input_config_dir": job.ml / "input" / "config",
        "output_dir": job.ml / "output",
        "output_data_dir": job.ml / "output" / "data",
        "module_dir": source,
        **{f"channel_{name}": job.ml / "input" / "data" / name for name in job.channels},
    }
    values: dict[str, object] = {
        "hosts": job.hosts,
        "current_host": job.current,
        "current_instance_type": job.resources.get("current_instance_type", "local"),
        "current_instance_group": job.resources.get("current_group_name", "homogeneousCluster"),
        "network_interface_name": job.interface,
        "num_gpus": gpus,
        "num_cpus": os.cpu_count(),
        "channels": sorted(job.channels),
        "hps": job.hyperparameters,
        "user_args": arguments(job),
        "user_entry_point": program,
        "log_level": job.settings.get("sagemaker_container_log_level", 20),
        "resource_config": job.resources,
        "input_data_config": job.channels,
        **{name: str(path) for name, path in paths.items()},
    }
    single = {f"hp_{name}": value for name, value in job.hyperparameters.items()}
    values_by_name = {**values, **single, "training_env": values}
    return {f"SM_{name.upper()}": encoded(value) for name, value in values_by_name.items()}


def encoded(value: object) -> str:
    """Return a value as an environment variable has it: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))


def find_source(job: TrainingJob) -> Path:
    """Return the folder with the job's source; unpack it into /opt/ml/code where it is an archive. Raises JobError."""
    named = job.settings.get("sagemaker_submit_directory") or os.environ.get("SAGEMAKER_SUBMIT_DIRECTORY")
    code = job.ml / "code"
    if not named or Path(str(named)).is_dir():
        return Path(str(named or code))
    with tempfile.TemporaryDirectory() as folder:
        archive = download(str(named), Path(folder)) if urlsplit(str(named)).scheme == "s3" else Path(str(named))
        code.mkdir(parents=True, exist_ok=True)
        try:
            with tarfile.open(archive) as tar:
                unpack(tar, code)
        except (OSError, tarfile.TarError) as error:
            raise JobError(
                f"sagemaker_submit_directory {named} cannot be unpacked: {error}.\n"
                "Name a folder, or a tar.gz with the source."
            ) from None
    return code


def unpack(tar: tarfile.TarFile, to: Path) -> None:
    """Unpack an archive into a folder, and nothing outside of it. Raises tarfile.TarError for what would be."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(to, filter="data")
        return
    # Debian 12's Python has no filters: files and folders alone are taken.
    for member in tar:
        is_inside = (to / member.name).resolve().is_relative_to(to.resolve())
        if not is_inside or not (member.isfile() or member.isdir()):
            raise tarfile.TarError(f"{member.name} is no file inside")
        tar.extract(member, to)


def download(url: str, folder: Path) -> Path:
    """Download an object of S3 with the job's role, and return its path. Raises JobError."""
    try:
        import boto3  # only a job whose source is in S3 needs it
    except ImportError:
        raise JobError(
            f"{url} cannot be fetched: boto3 is not installed.\nAdd boto3 to the image's packages."
        ) from None
    address = urlsplit(url)
    try:
        boto3.client("s3", region_name=os.environ.get("AWS_REGION")).download_file(
            address.netloc, address.path.lstrip("/"), str(folder / "source")
        )
    except Exception as error:  # botocore's errors have no parent of their own but this one
        raise JobError(
            f"{url} cannot be fetched: {error}.\nCheck the name, and what the job's role may read."
        ) from None
    return folder / "source"


def find_program(job: TrainingJob, source: Path) -> str:
    """Return the job's program, relative to its source. Raises JobError where torchrun cannot start it."""
    for name in REFUSED:
        if job.settings.get(name):
            raise JobError(
                f"the job sets {name}, which this image does not have.\n"
                "Remove it: torchrun starts the program on every host."
            )
    program = os.environ.get("SAGEMAKER_PROGRAM") or job.settings.get("sagemaker_program")
    if not program:
        raise JobError(
            "the job names no program.\nSet the hyperparameter sagemaker_program to a Python file of its source."
        )
    if not str(program).endswith(".py"):
        raise JobError(
            f"sagemaker_program {program} is no Python file.\nName a .py file, or set the job's ContainerEntrypoint."
        )
    if not (source / str(program)).is_file():
        files = ", ".join(sorted(path.name for path in source.glob("*"))[:20]) or "nothing"
        raise JobError(
            f"sagemaker_program {program} is not in {source}: there is {files}.\n"
            "Check its name, and sagemaker_submit_directory."
        )
    if (source / "requirements.txt").exists():
        say("requirements.txt is not installed: the image has no pip. Add its packages to the image.")
    return str(program)


def count_gpus() -> int:
    """Count the container's GPUs; 0 where there is no driver. Raises JobError where the driver does not answer."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return 0
    done = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise JobError(
            f"nvidia-smi fails: {(done.stderr or done.stdout).strip()}.\n"
            "The host's GPUs need attention: use another host."
        )
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def say(text: str) -> None:
    """Print a line to the job's log."""
    print(f"train: {text}", file=sys.stderr, flush=True)
