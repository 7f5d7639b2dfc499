# sagemaker-efa-pytorch-2.15.0-cu13.2-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.13-debian13
# Rendered from dockerfiles/targets/sagemaker-efa-pytorch.j2; a change belongs there, or into matrix.yaml.
#   base debian13
#   python 3.13, by base
#   pytorch 2.15.0
#   cuda 13.2, by pytorch
#   nccl 2.30.7, by pytorch
#   efa-installer 1.50.0
#   aws-ofi-nccl 1.21.1, by efa-installer
#   libfabric 2.6.0amzn1.0, by efa-installer
#   rdma-core 64.0, by efa-installer
#   cudnn 9.26.0.51, by pytorch

# uv 0.9.1 builds the layers of the wheels. Nothing of this stage is in the image, and nothing in it depends on the
# image's base: a layer depends on the wheel, on Python's version and on /opt/venv, and is the same bytes everywhere.
FROM --platform=$BUILDPLATFORM builder AS uv
RUN --mount=type=cache,id=apt-archives-builder,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=apt-lists-builder,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt-config-builder,target=/run/secrets/apt-config,mode=0444 \
    --mount=type=secret,id=apt-sources-builder,target=/run/secrets/apt-sources,mode=0444 \
    --mount=type=secret,id=apt-auth-builder,target=/run/secrets/apt-auth,mode=0444 \
    --mount=type=secret,id=ca-bundle,mode=0444 <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends ca-certificates python3 python3-pip-whl
python3 -m venv --without-pip /opt/venv
SH

RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=pip-config --mount=type=secret,id=netrc <<'SH'
set -eu
export PIP_CONFIG_FILE=/run/secrets/pip-config NETRC=/run/secrets/netrc PIP_CERT=/run/secrets/ca-bundle
# pip runs from its wheel, as Python's own ensurepip runs it: it is needed once.
wheel=$(echo /usr/share/python-wheels/pip-*.whl)
python3 "$wheel/pip" install --target /opt/uv --quiet --no-cache-dir --no-compile \
    --disable-pip-version-check --only-binary :all: --require-hashes --requirement /dev/stdin <<'LOCK'
uv==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
LOCK
SH

COPY <<'TEXT' /usr/local/share/devel-files.txt
# What a wheel brings for building and testing software, and no program that only runs loads: left out of the runtime
# image and there in the devel one. A pattern a line, of paths below site-packages, `*` also across folders.
#
# Stays, since it is loaded where no compiler is: the headers of CUDA, NCCL and NVSHMEM (NVRTC compiles kernels against
# them: torch.cuda._compile_kernel), *.bc (linked into kernels), triton/backends/*/include and Triton's own ptxas (for the
# launcher of every kernel), torch/testing, numpy/testing and mpmath/tests (imported by others).

# Static libraries
*.a
# Headers
torch/include/*
triton/include/*
nvidia/cudnn/include/*
nvidia/cusparselt/include/*
numpy/_core/include/*
*.pxd
# For CMake and pkg-config
torch/share/cmake/*
nvidia/*/lib/cmake/*
*.pc
# Types, for editors and type checkers
torch/*.pyi
numpy/*.pyi
# Compilers and test tools
torch/bin/protoc*
triton/FileCheck
triton/instrumentation/*
triton/plugins/*
# Tests
fsspec/tests/*
networkx/*/tests/*
networkx/tests/*
numpy/*/tests/*
numpy/tests/*
sympy/*/tests/*
TEXT

COPY --chmod=755 <<'PY' /usr/local/bin/split-devel
#!/usr/bin/env python3
"""split-devel SITE DEVEL PATTERNS: move what only builds and tests need from SITE, a site-packages, to DEVEL.

Each wheel's RECORD tells the truth in both images: in SITE it has what is left, and the whole one lies in DEVEL, whose
layer comes above.
"""

import csv
import re
import sys
from contextlib import suppress
from fnmatch import translate
from pathlib import Path

Row = list[str]  # a line of RECORD: path, hash, size in bytes


def patterns(text: str) -> re.Pattern[str]:
    """All patterns of the file as one expression."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return re.compile("|".join(translate(line) for line in lines))


def split(record: Path, site: Path, devel: Path, devel_files: re.Pattern[str]) -> int:
    """Move one wheel's files. Returns their bytes, by its RECORD."""
    text = record.read_text(encoding="utf-8")
    rows: list[Row] = list(csv.reader(text.splitlines()))
    moved = [row for row in rows if devel_files.match(row[0])]
    if not moved:
        return 0
    for path, *_ in moved:
        _move(site / path, devel / path)
    kept = [row for row in rows if not devel_files.match(row[0])]
    with record.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(kept)
    whole = devel / record.relative_to(site)
    whole.parent.mkdir(parents=True)
    whole.write_text(text, encoding="utf-8")
    return sum(int(size or 0) for *_, size in moved)


def _move(file: Path, to: Path) -> None:
    """Move a file, and let go of the folders that it leaves empty."""
    to.parent.mkdir(parents=True, exist_ok=True)
    file.rename(to)
    with suppress(OSError):  # the first folder that is not empty; to list each would take long in one of 7,000 headers
        for folder in file.parents:
            folder.rmdir()


if __name__ == "__main__":
    site, devel, listed = map(Path, sys.argv[1:])
    devel_files = patterns(listed.read_text(encoding="utf-8"))
    for record in sorted(site.glob("*.dist-info/RECORD")):
        size = split(record, site, devel, devel_files)
        print(f"{record.parent.name}: {size} bytes for the devel image")
PY

COPY --chmod=755 <<'SH' /usr/local/bin/wheel-layer
#!/bin/sh
# wheel-layer PLATFORM [PYTHON] < requirements with hashes
# Installs the wheels into /layer/opt/venv, as the same bytes wherever and whenever this runs; what only a devel image
# needs goes to /devel/opt/venv.
set -eu
platform=$1 python=${2-}
export SSL_CERT_FILE=/run/secrets/ca-bundle UV_CONFIG_FILE=/run/secrets/uv-config NETRC=/run/secrets/netrc
# Unpacked beside its destination and linked into it: a wheel is written once. A cache mount would hold it a second
# time, unpacked, for builds that BuildKit's own cache of this step already spares.
export UV_CACHE_DIR=/layer/unpacked UV_LINK_MODE=hardlink UV_NO_PROGRESS=1
requirements=$(mktemp)
cat > "$requirements"

# The wheels are chosen for the image's platform and Python; the builder's own Python only runs uv's layout script.
/opt/uv/bin/uv pip install --quiet --python /opt/venv/bin/python --prefix /layer/opt/venv \
    --python-platform "$platform" ${python:+--python-version "$python"} \
    --no-deps --only-binary :all: --require-hashes --requirement "$requirements"
rm -rf "$UV_CACHE_DIR"

# One folder for every Python: see the stage that makes /opt/venv/lib/python3.x/site-packages a link to it.
mv /layer/opt/venv/lib/python3.*/site-packages /layer/opt/venv/site-packages
rm -rf /layer/opt/venv/lib /layer/opt/venv/.lock /layer/opt/venv/CACHEDIR.TAG
mkdir -p /devel/opt/venv/site-packages
split-devel /layer/opt/venv/site-packages /devel/opt/venv/site-packages /usr/local/share/devel-files.txt

# A wheel cannot hold links: a library with three names is in it three times.
hardlink --quiet --ignore-time --ignore-owner --minimum-size 64K /layer

# 1980-01-01, the earliest time that a wheel can hold; parents' times too, since they are in the layer.
find /layer /devel -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
SH

# python 3.13, the base's own, and the virtual environment that the wheels' layers fill.
# Its site-packages is a link to a folder without Python's version in its path: so a wheel that fits every Python is
# the same layer under every base.
FROM base AS with-python
RUN --mount=type=cache,id=apt-archives-debian13,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=apt-lists-debian13,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt-config,target=/run/secrets/apt-config,mode=0444 \
    --mount=type=secret,id=apt-sources,target=/run/secrets/apt-sources,mode=0444 \
    --mount=type=secret,id=apt-auth,target=/run/secrets/apt-auth,mode=0444 \
    --mount=type=secret,id=ca-bundle,mode=0444 <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
started=$(date +%s.%N); sleep 0.02
apt-get update -qq
apt-get install -qq --no-install-recommends ca-certificates python3
python3 -c 'import sys; found = "%d.%d" % sys.version_info[:2]; sys.exit(found != "3.13" and "python is " + found + ", planned was 3.13")'
mkdir -p /workspace /opt/venv/bin /opt/venv/site-packages /opt/venv/lib/python3.13
ln -s /usr/bin/python3 /opt/venv/bin/python3
ln -s python3 /opt/venv/bin/python
ln -s ../../site-packages /opt/venv/lib/python3.13/site-packages
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' > /opt/venv/pyvenv.cfg
find /var/log -type f -newermt "@$started" -delete
if [ -n "$(find /etc/machine-id -newermt "@$started" 2> /dev/null)" ]; then : > /etc/machine-id; fi
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/cache/ldconfig/aux-cache
today=$((${started%.*} / 86400)) # or the day after, past midnight
if [ -e /etc/shadow ]; then sed -i -E "s/^([^:]*:[^:]*):($today|$((today + 1))):/\1:3652:/" /etc/shadow; fi
find / -xdev -newermt "@$started" -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
touch --no-create --date=1980-01-01T00:00:00Z /mnt /run
SH

# efa-installer 1.50.0: libfabric with the efa provider, rdma-core, Open MPI, and an NCCL plugin.
# A RUN on the base and never a COPY: the installer also replaces rdma-core under /usr.
#   -y: no terminal to ask
#   --skip-kmod: the kernel module is the host's
#   --skip-limit-conf: the limits of a container come from whoever starts it
#   --no-verify: no device where the image is built
#   --mpi=openmpi4: two Open MPI come otherwise, and the second is asked for by nothing
#   --disable-build-ngc: newer installers take NVIDIA's entrypoint for an NGC image, and then leave out rdma-core and libnccl-net.so
#   --disable-ngc: NCCL would find no plugin, and use TCP without an error
FROM with-python AS with-efa-installer
RUN --mount=type=bind,from=efa-installer,target=/mnt/efa-installer \
    --mount=type=tmpfs,target=/tmp \
    --mount=type=cache,id=apt-archives-debian13,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=apt-lists-debian13,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt-config,target=/run/secrets/apt-config,mode=0444 \
    --mount=type=secret,id=apt-sources,target=/run/secrets/apt-sources,mode=0444 \
    --mount=type=secret,id=apt-auth,target=/run/secrets/apt-auth,mode=0444 \
    --mount=type=secret,id=ca-bundle,mode=0444 <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
started=$(date +%s.%N); sleep 0.02
apt-get update -qq
tar --extract --gzip --file /mnt/efa-installer/*.tar.gz --directory /tmp --no-same-owner
cd /tmp/aws-efa-installer
./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify --mpi=openmpi4 --disable-build-ngc --disable-ngc
ldconfig
# AWS's libfabric opens CUDA's runtime by the name libcudart.so, which is in no wheel: without it libfabric does not know
# the GPUs' memory, and the plugin ends where it requires GPUDirect, as on p5.48xlarge. The loader finds the link in the
# system's own folder.
ln -sf /opt/venv/site-packages/nvidia/cu13/lib/libcudart.so.13 "/usr/lib/$(uname -m)-linux-gnu/libcudart.so"
find /var/log -type f -newermt "@$started" -delete
if [ -n "$(find /etc/machine-id -newermt "@$started" 2> /dev/null)" ]; then : > /etc/machine-id; fi
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/cache/ldconfig/aux-cache
today=$((${started%.*} / 86400)) # or the day after, past midnight
if [ -e /etc/shadow ]; then sed -i -E "s/^([^:]*:[^:]*):($today|$((today + 1))):/\1:3652:/" /etc/shadow; fi
find / -xdev -newermt "@$started" -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
touch --no-create --date=1980-01-01T00:00:00Z /mnt /run
SH

# nvidia-nccl-cu13 2.30.7: 250 MB to download.
FROM uv AS wheel-nvidia-nccl-cu13
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 <<'LOCK'
nvidia-nccl-cu13==2.30.7 --hash=sha256:21b160cbe748c4645719d30961701123992f1171e8807b9425ccf51588e3d01c
LOCK

# The 3 wheels under 17 MB, together: 3 MB to download.
FROM uv AS wheels-small
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 <<'LOCK'
boto3==1.0 --hash=sha256:35824db6b08fbe3610685c9e3f86bbdebcda4031a7e3205d8e79a89c70e1d2f6
numpy==1.0 --hash=sha256:4e1259a848e26db07d6e9b0e5b311e45cd316c6ca40ccc25fb0334f3a0ec8a2f
nvidia-cuda-runtime==13.0.96 --hash=sha256:f0b7f84f386947f9c76ed8efc71c3c874c7937e0be48bcea414c736aa3465b2f
LOCK

# torch 2.15.0: 900 MB to download.
FROM uv AS wheel-torch
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 3.13 <<'LOCK'
torch==2.15.0 --hash=sha256:5b448df195cb0cfa87cbf4882482f336198044e03f66b2e11044f347660e9971
LOCK

# pytorch 2.15.0, cuda 13.2, nccl 2.30.7: 3 layers, the largest first, so that a pull runs in parallel from its start.
# The build makes these layers itself, once for all images and engines, and hands them over as the context `wheels`,
# which then stands for this stage; without that context the stages above make the same files.
FROM scratch AS wheels
COPY --link --from=wheel-nvidia-nccl-cu13 /layer/ /
COPY --link --from=wheels-small /layer/ /
COPY --link --from=wheel-torch /layer/ /

# Everything that is not a wheel: built while the wheels' layers are made.
FROM with-efa-installer AS system

# The same as a layer. No other stage needs it: the build has the image's upper layer copied and compressed meanwhile.
FROM scratch AS system-layer
COPY --link --from=system / /

# The wheels lie below the system and the fabric: an engine unpacks again whatever is above a change, so that a new EFA
# installer or base is 0.2 GB to a node that has the image, and not every wheel once more.
FROM wheels AS with-wheels
COPY --link --from=system / /

# What a process in the image starts with. Nothing here leads a loader: libraries are found through ld.so.conf.d and the
# wheels' own run paths, because a set LD_LIBRARY_PATH is how a wrong NCCL gets loaded.
FROM with-wheels AS with-environment
ENV PATH=/opt/venv/bin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Where the fabric is not there, NCCL ends with an error, instead of going on over TCP. `describe` says how to lift it.
ENV NCCL_NET="Libfabric" FI_PROVIDER="efa"
WORKDIR /workspace
CMD ["/bin/bash"]

# What SageMaker asks of a training container: the folders under /opt/ml, into which it mounts the job's configuration (with
# resourceconfig.json, the job's hosts) and data, and the command `train`.
FROM with-environment AS with-sagemaker
COPY --chmod=755 <<'PY' /opt/sagemaker/sagemaker_job.py
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
PY

COPY --chmod=755 <<'PY' /opt/sagemaker/sagemaker_launch.py
"""torchrun on one host of a SageMaker training job: where it meets the others, what it is sent, and why it failed."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from sagemaker_job import JobError, TrainingJob, say

PORT = 7777  # of torchrun's rendezvous on the first host
WAIT = 15 * 60  # seconds for a host's name: a job's containers start minutes apart
TAIL = 64 * 1024  # bytes of the processes' errors, of which the reason of a failure is told
TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<error>\S.*)", re.MULTILINE)


def wait_for(hosts: Sequence[str], limit: float = WAIT) -> None:
    """Return when every host's name has an address. Raises JobError after `limit` seconds."""
    end = time.monotonic() + limit
    for host in hosts:
        pause = 0.1
        while not has_address(host):
            if time.monotonic() + pause > end:
                raise JobError(
                    f"{host} has no address after {limit:g} s.\nCheck that its container has started: see its log."
                )
            if pause > 1:
                say(f"waiting for {host}")
            time.sleep(pause)
            pause = min(pause * 2, 15)


def has_address(host: str) -> bool:
    """Return whether a name can be resolved."""
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


def torchrun_options(job: TrainingJob, processes: int) -> list[str]:
    """Return the options with which torchrun starts this host's part of the job."""
    if len(job.hosts) == 1:
        return ["--standalone", f"--nproc-per-node={processes}"]
    return [
        f"--nnodes={len(job.hosts)}",
        f"--nproc-per-node={processes}",
        f"--node-rank={job.hosts.index(job.current)}",
        f"--master-addr={job.hosts[0]}",
        f"--master-port={PORT}",
    ]


def torchrun(options: Sequence[str]) -> int:
    """Run torchrun in this process. Return the exit code of the rank that failed first; torchrun's own would be 1."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as start

    try:
        start(options)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        say(f"rank {rank} ended with {failure.exitcode}")
        return exit_code(failure.exitcode)
    return 0


def exit_code(ended: int) -> int:
    """Return a process's exit code as a shell gives it: 128 and the signal's number where a signal ended it."""
    return 128 - ended if ended < 0 else ended


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> tuple[int, str]:
    """Run a launcher of processes to its end. Return its exit code and, unless that is 0, why it failed.

    SIGTERM goes to the processes that it launched, and not to itself: torchrun gives them 30 seconds, SageMaker 120.
    """
    process = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.PIPE, start_new_session=True)
    stopped: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        stopped.append(number)
        say("SIGTERM: the processes are told, and may save")
        for pid in children(process.pid) or [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    signal.signal(signal.SIGTERM, forward)
    tail = bytearray()
    assert process.stderr
    reader = threading.Thread(target=copy_errors, args=(process.stderr, tail), daemon=True)
    reader.start()
    code = exit_code(process.wait())
    reader.join(5)  # what a process left behind may hold the pipe
    return code, reason(code, tail.decode("utf-8", "replace"), bool(stopped)) if code else ""


def copy_errors(stream: BinaryIO, tail: bytearray) -> None:
    """Pass on what is written to `stream`, at once, and keep the end of it."""
    while data := os.read(stream.fileno(), 1 << 16):
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        tail += data
        del tail[:-TAIL]


def children(parent: int) -> list[int]:
    """Return the processes that a process started."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            after_name = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                pids.append(int(stat.parent.name))
    return pids


def reason(code: int, errors: str, stopped: bool) -> str:
    """Return why the processes failed, the most telling first: rank, first error, and where that was raised."""
    ranks = re.findall(r"^train: rank (\d+) ended with -?\d+$", errors, re.MULTILINE)
    subject = f"rank {ranks[-1]} ended with {code}" if ranks else f"the job ended with {code}"
    # torch puts the rank before each line of a traceback as soon as the ranks have met.
    lines_of_rank = re.findall(rf"^\[rank{ranks[-1]}\]: ?(.*\n)", errors, re.MULTILINE) if ranks else []
    first = TRACEBACK.search("".join(lines_of_rank)) or TRACEBACK.search(errors)
    text = f"{subject}: {first['error'][:400]}\n{first[0][-550:]}" if first else f"{subject}\n{errors.strip()[-900:]}"
    return f"after SIGTERM {text}" if stopped else text
PY

COPY --chmod=755 <<'PY' /opt/sagemaker/sagemaker_train.py
#!/opt/venv/bin/python
"""usage: train

The command that SageMaker starts in each container of a training job (rdma-images). It reads the job from
/opt/ml/input/config, waits until every host of it has an address, and starts torchrun with the job's program: one
process for each GPU.

It sets SM_* variables, as SageMaker's training toolkit documents them, and GLOO_SOCKET_IFNAME. It sets no variable of
NCCL, of libfabric or of rdma-core: those are the image's, or the job's own.
"""

import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from sagemaker_job import JobError, arguments, count_gpus, find_program, find_source, read_job, say, variables
from sagemaker_launch import exit_code, run, torchrun, torchrun_options, wait_for

LONGEST = 1024  # characters of /opt/ml/output/failure that SageMaker shows


def train(ml: Path) -> tuple[int, str]:
    """Run this host's part of the job. Return exit code and, unless that is 0, the reason. Raises JobError."""
    job = read_job(ml)
    source = find_source(job)
    program = find_program(job, source)
    gpus = count_gpus()
    if len(job.hosts) > 1:
        wait_for(job.hosts)
    environment = {**os.environ, **variables(job, program, source, gpus)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(source), environment.get("PYTHONPATH")]))
    if job.interface in (name for _, name in socket.if_nameindex()):
        # Without it gloo takes the address of the container's host name, which need not be the job's.
        environment.setdefault("GLOO_SOCKET_IFNAME", job.interface)
    options = [*torchrun_options(job, gpus or 1), program, *arguments(job)]
    say(f"{job.current} of {', '.join(job.hosts)}: torchrun {' '.join(options)}")
    return run([sys.executable, str(Path(__file__).resolve()), "--torchrun", *options], environment, source)


def main(words: Sequence[str]) -> int:
    """Run the command as `words` say, and return its exit code."""
    if words[:1] == ["--torchrun"]:
        return torchrun(words[1:])
    if words:
        print(__doc__)
        return 0 if words == ["--help"] else 2
    # The first process of a container ignores the signal unless it handles it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(exit_code(-signal.SIGTERM)))
    ml = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    try:
        code, failure = train(ml)
        if code:
            tell_failure(ml, failure)
    except (JobError, OSError) as error:
        say(str(error))
        tell_failure(ml, str(error))
        return 1
    return code


def tell_failure(ml: Path, text: str) -> None:
    """Write why the job failed to where SageMaker reads it, unless the job's program has written that itself."""
    file = ml / "output" / "failure"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as failure:
            failure.write(text[:LONGEST])
    except FileExistsError:
        say(f"{file} is the program's own")
    except OSError as error:
        say(f"{file} cannot be written: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
PY

RUN <<'SH'
set -eu
started=$(date +%s.%N); sleep 0.02
mkdir -p /opt/ml/checkpoints /opt/ml/code /opt/ml/input/config /opt/ml/input/data /opt/ml/model /opt/ml/output
ln -s /opt/sagemaker/sagemaker_train.py /usr/local/bin/train
train --help
find / -xdev -newermt "@$started" -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
touch --no-create --date=1980-01-01T00:00:00Z /mnt /run
SH

WORKDIR /opt/ml/code
CMD ["train"]

# `rdma-preflight`, which checks a job's nodes and runs its command: plain files of this tool, with fixed times.
FROM with-sagemaker AS image
ADD preflight.tar /
