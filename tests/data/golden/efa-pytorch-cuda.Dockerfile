# efa-pytorch-2.14.1-cu13.0-nccl2.30.7-efa1.50.0-ofi1.21.1-py3.10-cuda13.1.2-runtime-ubuntu22.04
# Rendered from dockerfiles/targets/efa-pytorch.j2; a change belongs there, or into matrix.yaml.
#   base cuda13.1.2-runtime-ubuntu22.04
#   python 3.10, by base
#   pytorch 2.14.1
#   cuda 13.0, by pytorch
#   nccl 2.30.7, by pytorch
#   efa-installer 1.50.0
#   aws-ofi-nccl 1.21.1, by efa-installer
#   libfabric 2.6.0amzn1.0, by efa-installer
#   rdma-core 64.0, by efa-installer
#   cudnn 9.24.0.43, by pytorch

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

# cuda13.1.2-runtime-ubuntu22.04 without what would be found beside the image's own libraries, or in their place.
FROM base AS with-base
# The base sets this, and a Dockerfile cannot unset: empty is the same to the loader.
ENV LD_LIBRARY_PATH=""
RUN --mount=type=cache,id=apt-archives-cuda13.1.2-runtime-ubuntu22.04,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=apt-lists-cuda13.1.2-runtime-ubuntu22.04,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt-config,target=/run/secrets/apt-config,mode=0444 \
    --mount=type=secret,id=apt-sources,target=/run/secrets/apt-sources,mode=0444 \
    --mount=type=secret,id=apt-auth,target=/run/secrets/apt-auth,mode=0444 \
    --mount=type=secret,id=ca-bundle,mode=0444 <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
started=$(date +%s.%N); sleep 0.02
dpkg-query --show --showformat '${db:Status-Abbrev}${Package}\n' ibverbs-utils libibverbs-dev libibverbs1 libmlx5-1 libnccl2 libnccl-dev 2> /dev/null | sed -n 's/^.i *//p' |
    xargs --no-run-if-empty apt-get purge -qq --allow-change-held-packages
find /var/log -type f -newermt "@$started" -delete
if [ -n "$(find /etc/machine-id -newermt "@$started" 2> /dev/null)" ]; then : > /etc/machine-id; fi
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/cache/ldconfig/aux-cache
today=$((${started%.*} / 86400)) # or the day after, past midnight
if [ -e /etc/shadow ]; then sed -i -E "s/^([^:]*:[^:]*):($today|$((today + 1))):/\1:3652:/" /etc/shadow; fi
find / -xdev -newermt "@$started" -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
touch --no-create --date=1980-01-01T00:00:00Z /mnt /run
SH

# python 3.10, the base's own, and the virtual environment that the wheels' layers fill.
# Its site-packages is a link to a folder without Python's version in its path: so a wheel that fits every Python is
# the same layer under every base.
FROM with-base AS with-python
RUN --mount=type=cache,id=apt-archives-cuda13.1.2-runtime-ubuntu22.04,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=apt-lists-cuda13.1.2-runtime-ubuntu22.04,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt-config,target=/run/secrets/apt-config,mode=0444 \
    --mount=type=secret,id=apt-sources,target=/run/secrets/apt-sources,mode=0444 \
    --mount=type=secret,id=apt-auth,target=/run/secrets/apt-auth,mode=0444 \
    --mount=type=secret,id=ca-bundle,mode=0444 <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
started=$(date +%s.%N); sleep 0.02
apt-get update -qq
apt-get install -qq --no-install-recommends ca-certificates python3
python3 -c 'import sys; found = "%d.%d" % sys.version_info[:2]; sys.exit(found != "3.10" and "python is " + found + ", planned was 3.10")'
mkdir -p /workspace /opt/venv/bin /opt/venv/site-packages /opt/venv/lib/python3.10
ln -s /usr/bin/python3 /opt/venv/bin/python3
ln -s python3 /opt/venv/bin/python
ln -s ../../site-packages /opt/venv/lib/python3.10/site-packages
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
    --mount=type=cache,id=apt-archives-cuda13.1.2-runtime-ubuntu22.04,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=apt-lists-cuda13.1.2-runtime-ubuntu22.04,target=/var/lib/apt/lists,sharing=locked \
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

# The 2 wheels under 17 MB, together: 2 MB to download.
FROM uv AS wheels-small
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 <<'LOCK'
numpy==1.0 --hash=sha256:4e1259a848e26db07d6e9b0e5b311e45cd316c6ca40ccc25fb0334f3a0ec8a2f
nvidia-cuda-runtime==13.0.96 --hash=sha256:f0b7f84f386947f9c76ed8efc71c3c874c7937e0be48bcea414c736aa3465b2f
LOCK

# torch 2.14.1: 900 MB to download.
FROM uv AS wheel-torch
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 3.10 <<'LOCK'
torch==2.14.1 --hash=sha256:8f67125761b7c2849a541e53a665534cdab612f3731ce87fd351dac8daf054cc
LOCK

# pytorch 2.14.1, cuda 13.0, nccl 2.30.7: 3 layers, the largest first, so that a pull runs in parallel from its start.
# They lie above the base, which is large and brings settings of its own.
FROM with-efa-installer AS with-wheels
COPY --link --from=wheel-nvidia-nccl-cu13 /layer/ /
COPY --link --from=wheels-small /layer/ /
COPY --link --from=wheel-torch /layer/ /

# What a process in the image starts with. Nothing here leads a loader: libraries are found through ld.so.conf.d and the
# wheels' own run paths, because a set LD_LIBRARY_PATH is how a wrong NCCL gets loaded.
FROM with-wheels AS with-environment
ENV PATH=/opt/venv/bin:/usr/local/cuda/bin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Where the fabric is not there, NCCL ends with an error, instead of going on over TCP. `describe` says how to lift it.
ENV NCCL_NET="Libfabric" FI_PROVIDER="efa"
WORKDIR /workspace
CMD ["/bin/bash"]

# `rdma-preflight`, which checks a job's nodes and runs its command: plain files of this tool, with fixed times.
FROM with-environment AS image
ADD preflight.tar /
