# efa-train-2.15.0-cu13.2-nccl2.30.7-efa1.50.0-gdr2.6-ofi1.21.1-py3.13-debian13
# Rendered from dockerfiles/targets/efa-pytorch.j2; a change belongs there, or into matrix.yaml.
#   base debian13
#   python 3.13, by base
#   pytorch 2.15.0
#   cuda 13.2, by pytorch
#   nccl 2.30.7, by pytorch
#   efa-installer 1.50.0
#   gdrcopy 2.6
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

# CUDA 13.2's compiler and headers, from wheels, in the layout of a toolkit: to be mounted where something is compiled.
FROM uv AS cuda-toolkit
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 <<'LOCK'
nvidia-cuda-nvcc==13.0.88 --hash=sha256:f1c593da7fdb03c73794a6f235a083c724bea5e49a6dccbb3c7bdfb0f8f432fb
nvidia-nvvm==13.0.88 --hash=sha256:4be8d338893096899655d9553034ff7492d1d5f40df2465d267a90ad9470dcff
nvidia-cuda-crt==13.0.88 --hash=sha256:7c37c781c42afa9dd5294d7d134ce9dbf6521bf31263d21d28b3efc59e54fb4f
nvidia-cuda-cccl==13.0.88 --hash=sha256:8987a9df30fd5e2d8b802422783c237b6d430acd74fa18aaeb00b8f137c23d9d
nvidia-cuda-runtime==13.0.88 --hash=sha256:ab822a200024b77d95c7fb77f3d14a7c491cb71c6232ffb3f06658cf3584035a
LOCK

RUN <<'SH'
set -eu
mv /layer/opt/venv/site-packages/nvidia/cu* /cuda
# What is kept apart for devel images: static libraries.
cp --archive --link /devel/opt/venv/site-packages/nvidia/cu*/. /cuda/
ln -s lib /cuda/lib64
(cd /cuda/lib && ln -s libcudart.so.* libcudart.so)
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
apt-get install -qq --no-install-recommends ca-certificates python3 gcc libc6-dev libpython3-dev
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

# ssh, over which mpirun starts its ranks on other nodes. Keys come from whoever starts the containers, as Kubernetes' MPI
# operator does it; none is in the image.
FROM with-efa-installer AS with-ssh
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
apt-get install -qq --no-install-recommends openssh-client openssh-server
rm -f /etc/ssh/ssh_host_*
mkdir -p /run/sshd
printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n' > /etc/ssh/ssh_config.d/mpi.conf
printf 'StrictModes no\n' > /etc/ssh/sshd_config.d/mpi.conf
find /var/log -type f -newermt "@$started" -delete
if [ -n "$(find /etc/machine-id -newermt "@$started" 2> /dev/null)" ]; then : > /etc/machine-id; fi
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/cache/ldconfig/aux-cache
today=$((${started%.*} / 86400)) # or the day after, past midnight
if [ -e /etc/shadow ]; then sed -i -E "s/^([^:]*:[^:]*):($today|$((today + 1))):/\1:3652:/" /etc/shadow; fi
find / -xdev -newermt "@$started" -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
touch --no-create --date=1980-01-01T00:00:00Z /mnt /run
SH

# GDRCopy 2.6: its library and header. The kernel module, gdrdrv, is the host's.
FROM with-ssh AS build-gdrcopy
RUN --mount=type=bind,from=gdrcopy,target=/mnt/gdrcopy \
    --mount=type=cache,id=apt-archives-debian13,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=apt-lists-debian13,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt-config,target=/run/secrets/apt-config,mode=0444 \
    --mount=type=secret,id=apt-sources,target=/run/secrets/apt-sources,mode=0444 \
    --mount=type=secret,id=apt-auth,target=/run/secrets/apt-auth,mode=0444 \
    --mount=type=secret,id=ca-bundle,mode=0444 <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends gcc libc6-dev make
mkdir /tmp/build
tar --extract --gzip --file /mnt/gdrcopy/*.tar.gz --directory /tmp/build --strip-components=1 --no-same-owner
make --directory /tmp/build prefix=/opt/gdrcopy lib lib_install
find /opt/gdrcopy -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
SH

# aws-ofi-nccl opens it by the name libgdrapi.so.
FROM with-ssh AS with-gdrcopy
COPY --from=build-gdrcopy /opt/gdrcopy /opt/gdrcopy
RUN <<'SH'
set -eu
started=$(date +%s.%N); sleep 0.02
echo /opt/gdrcopy/lib > /etc/ld.so.conf.d/200_gdrcopy.conf
ldconfig
found=$(ldconfig --print-cache | sed -n 's/.*libgdrapi\.so .* => //p' | head -n 1)
if [ "$found" != /opt/gdrcopy/lib/libgdrapi.so ]; then
    echo "the loader should find /opt/gdrcopy/lib/libgdrapi.so, and finds: $found" >&2
    exit 1
fi
rm -f /var/cache/ldconfig/aux-cache
find / -xdev -newermt "@$started" -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
touch --no-create --date=1980-01-01T00:00:00Z /mnt /run
SH

# nvidia-nccl-cu13 2.30.7: 250 MB to download.
FROM uv AS wheel-nvidia-nccl-cu13
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 <<'LOCK'
nvidia-nccl-cu13==2.30.7 --hash=sha256:21b160cbe748c4645719d30961701123992f1171e8807b9425ccf51588e3d01c
LOCK

# The 6 wheels under 17 MB, together: 6 MB to download.
FROM uv AS wheels-small
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 <<'LOCK'
megatron-core==1.0 --hash=sha256:183664fe8b4f982902dcaeed447627a5c9f1061226e17e3ee3972c02ba7cc361
numpy==1.0 --hash=sha256:4e1259a848e26db07d6e9b0e5b311e45cd316c6ca40ccc25fb0334f3a0ec8a2f
nvidia-cuda-runtime==13.0.96 --hash=sha256:f0b7f84f386947f9c76ed8efc71c3c874c7937e0be48bcea414c736aa3465b2f
nvidia-curand==1.0 --hash=sha256:cd27b071b0bf9962c3e5ebd7a7b29212041d63a0799971b1e17cfe53310b7341
transformer-engine==1.0 --hash=sha256:e4f4d6e5e85a6b4b4a1c3f16d2e4a415c674f59079a8f75ca0a0e48c4c268014
transformers==1.0 --hash=sha256:d61baa3ce0dc72c69a788d08a6757af80529c4373ec96856e0ef55094a6ed4f8
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
FROM with-gdrcopy AS system

# The same as a layer. No other stage needs it: the build has the image's upper layer copied and compressed meanwhile.
FROM scratch AS system-layer
COPY --link --from=system / /

# The wheels lie below the system and the fabric: an engine unpacks again whatever is above a change, so that a new EFA
# installer or base is 0.2 GB to a node that has the image, and not every wheel once more.
FROM wheels AS with-wheels
COPY --link --from=system / /

# What the wheels bring for building software and a runtime image leaves out. The build hands it over as the context
# `devel-files`, which then stands for this stage.
FROM scratch AS devel-files
COPY --link --from=wheel-nvidia-nccl-cu13 /devel/ /
COPY --link --from=wheels-small /devel/ /
COPY --link --from=wheel-torch /devel/ /

# What compiles Python packages on the image's own base: a compiler, Python's headers, what builds packages, and what the wheels
# bring for building software. Nothing of it is in the image.
FROM with-wheels AS source-builder
COPY --link --from=devel-files / /
RUN --mount=type=bind,from=uv,source=/opt/uv/bin/uv,target=/usr/local/bin/uv \
    --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    --mount=type=cache,id=apt-archives-debian13,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=apt-lists-debian13,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt-config,target=/run/secrets/apt-config,mode=0444 \
    --mount=type=secret,id=apt-sources,target=/run/secrets/apt-sources,mode=0444 \
    --mount=type=secret,id=apt-auth,target=/run/secrets/apt-auth,mode=0444 \
    --mount=type=secret,id=ca-bundle,mode=0444 <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends g++ make python3-dev
export SSL_CERT_FILE=/run/secrets/ca-bundle UV_CONFIG_FILE=/run/secrets/uv-config NETRC=/run/secrets/netrc
uv pip install --quiet --no-cache --python /opt/venv/bin/python --target /opt/build-tools \
    --no-deps --only-binary :all: --require-hashes --requirement /dev/stdin <<'LOCK'
cmake==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
flit-core==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
hatchling==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
ninja==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
packaging==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
poetry-core==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
psutil==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
pybind11==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
scikit-build-core==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
setuptools==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
setuptools-scm==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
wheel==0.9.1 --hash=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
LOCK
# Links to the libraries of the wheels for the linker, by their own names and without versions.
mkdir /opt/cuda-links
for library in /opt/venv/site-packages/nvidia/*/lib/lib*.so.*; do
    ln -sf "$library" /opt/cuda-links/
    ln -sf "$library" "/opt/cuda-links/$(basename "$library" | sed 's/\.so\..*/.so/')"
done
# A package that asks for an older C++ than torch's headers are written in gets theirs: flash-attn 2.8.3 asks for 17, torch 2.15 for 20.
standard=$(grep -os 'std=c++[0-9][0-9]' /opt/venv/site-packages/torch/utils/cpp_extension.py | sort | tail -n 1)
for compiler in c++ g++; do
    cat > "/opt/build-tools/bin/$compiler" <<COMPILER
#!/bin/sh
for word; do
    shift
    case \$word in -std=c++1[0-9] | -std=gnu++1[0-9]) word=-${standard:-std=c++17} ;; esac
    set -- "\$@" "\$word"
done
exec /usr/bin/$compiler "\$@"
COMPILER
    chmod +x "/opt/build-tools/bin/$compiler"
done
echo "${standard:+-$standard}" > /opt/build-tools/nvcc-flags
# A package that lists GPUs itself is compiled for those of them that are asked for: causal-conv1d 1.7.0 lists nine.
cat > /opt/build-tools/nvcc-for-gpus <<'NVCC'
#!/opt/venv/bin/python -I
import os
import sys

words = iter(sys.argv[1:])
arguments = [f"{word}={next(words)}" if word in ("-gencode", "--generate-code") else word for word in words]
codes = [argument for argument in arguments if argument.startswith(("-gencode=", "--generate-code="))]
capabilities = "75 80 90 100 120".split()
wanted = [code for code in codes if code.split("arch=compute_")[-1].split(",")[0].rstrip("af") in capabilities] or codes
nvcc = "/usr/local/cuda/bin/nvcc"
os.execv(nvcc, [nvcc, *(argument for argument in arguments if argument not in codes or argument in wanted)])
NVCC
chmod +x /opt/build-tools/nvcc-for-gpus
SH

ENV PATH=/opt/build-tools/bin:/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    CUDA_HOME=/usr/local/cuda PYTORCH_NVCC=/opt/build-tools/nvcc-for-gpus FORCE_CUDA=1 NVCC_THREADS=1 LIBRARY_PATH=/opt/cuda-links \
    TORCH_CUDA_ARCH_LIST="7.5;8.0;9.0;10.0;12.0+PTX" CUDAARCHS="75;80;90;100;120" \
    PYTHONPATH=/opt/build-tools SOURCE_DATE_EPOCH=315532800

# deepspeed 1.0, of which the package index has no wheel.
FROM source-builder AS build-deepspeed
RUN --mount=type=bind,from=uv,source=/usr/share/python-wheels,target=/mnt/pip \
    --mount=type=bind,from=cuda-toolkit,source=/cuda,target=/usr/local/cuda \
    --mount=type=secret,id=ca-bundle --mount=type=secret,id=pip-config --mount=type=secret,id=netrc <<'SH'
set -eu
pip=$(echo /mnt/pip/pip-*.whl)
# A compiler takes some 4 GiB, a thread of nvcc as much as another compiler.
memory=$(awk '/^MemAvailable/ {print int($2 / 1048576 / 4)}' /proc/meminfo)
MAX_JOBS=$(nproc)
if [ "$memory" -lt "$MAX_JOBS" ]; then MAX_JOBS=$((memory > 0 ? memory : 1)); fi
export MAX_JOBS CMAKE_BUILD_PARALLEL_LEVEL="$MAX_JOBS"
CPATH=$(printf %s: /opt/venv/site-packages/nvidia/*/include)
export CPATH="${CPATH%:}"
NVCC_APPEND_FLAGS=$(cat /opt/build-tools/nvcc-flags)
export NVCC_APPEND_FLAGS
# The driver's library is the host's: what links with it gets one whose functions are empty.
grep -ohE '\<cu[A-Z]\w*' /opt/venv/site-packages/nvidia/*/include/cuda.h /usr/local/cuda/include/cuda.h 2> /dev/null |
    sort -u | sed 's/.*/void & (void) {}/' | gcc -shared -o /opt/cuda-links/libcuda.so -Wl,-soname,libcuda.so.1 -x c -
export DS_ACCELERATOR='cuda'
export DS_BUILD_FUSED_ADAM='1'
export DS_BUILD_FUSED_LAMB='1'
export DS_BUILD_FUSED_LION='1'
export PIP_CONFIG_FILE=/run/secrets/pip-config NETRC=/run/secrets/netrc PIP_CERT=/run/secrets/ca-bundle
python "$pip/pip" download --quiet --no-cache-dir --disable-pip-version-check --dest /sdist \
    --no-deps --no-build-isolation --use-pep517 --no-binary :all: --require-hashes --requirement /dev/stdin <<'LOCK'
deepspeed==1.0 --hash=sha256:d9a5dad5bda5be6a5a2d9f12a1d04a48824e4888c0b8c6dac65bffd6add7418f
LOCK
SH

RUN --network=none --mount=type=bind,from=uv,source=/usr/share/python-wheels,target=/mnt/pip \
    --mount=type=bind,from=cuda-toolkit,source=/cuda,target=/usr/local/cuda \
    --mount=type=cache,id=compile-deepspeed,target=/build,sharing=locked <<'SH'
set -eu
pip=$(echo /mnt/pip/pip-*.whl)
# A compiler takes some 4 GiB, a thread of nvcc as much as another compiler.
memory=$(awk '/^MemAvailable/ {print int($2 / 1048576 / 4)}' /proc/meminfo)
MAX_JOBS=$(nproc)
if [ "$memory" -lt "$MAX_JOBS" ]; then MAX_JOBS=$((memory > 0 ? memory : 1)); fi
export MAX_JOBS CMAKE_BUILD_PARALLEL_LEVEL="$MAX_JOBS"
CPATH=$(printf %s: /opt/venv/site-packages/nvidia/*/include)
export CPATH="${CPATH%:}"
NVCC_APPEND_FLAGS=$(cat /opt/build-tools/nvcc-flags)
export NVCC_APPEND_FLAGS
# The driver's library is the host's: what links with it gets one whose functions are empty.
grep -ohE '\<cu[A-Z]\w*' /opt/venv/site-packages/nvidia/*/include/cuda.h /usr/local/cuda/include/cuda.h 2> /dev/null |
    sort -u | sed 's/.*/void & (void) {}/' | gcc -shared -o /opt/cuda-links/libcuda.so -Wl,-soname,libcuda.so.1 -x c -
export DS_ACCELERATOR='cuda'
export DS_BUILD_FUSED_ADAM='1'
export DS_BUILD_FUSED_LAMB='1'
export DS_BUILD_FUSED_LION='1'
# A compile that was interrupted goes on where it was, if everything is as it was then.
state=$({ sha256sum /sdist/*; env -u MAX_JOBS -u CMAKE_BUILD_PARALLEL_LEVEL; ls /opt/venv/site-packages /opt/build-tools; cat /var/lib/dpkg/status; /usr/local/cuda/bin/nvcc --version; } | sha256sum)
source=/build/${state%% *}
find /build -mindepth 1 -maxdepth 1 ! -path "$source" -exec rm -rf {} +
if [ ! -e "$source" ]; then
    python -c 'import shutil, sys; shutil.unpack_archive(*sys.argv[1:])' /sdist/* /build/unpacked
    mv /build/unpacked/* "$source"
fi
python "$pip/pip" wheel --quiet --no-cache-dir --disable-pip-version-check --wheel-dir /wheels \
    --no-deps --no-build-isolation --use-pep517 "$source"
rm -rf "$source"
SH

FROM scratch AS source-deepspeed
COPY --link --from=build-deepspeed /wheels/ /

# flash-attn 1.0, of which the package index has no wheel.
FROM source-builder AS build-flash-attn
RUN --mount=type=bind,from=uv,source=/usr/share/python-wheels,target=/mnt/pip \
    --mount=type=bind,from=cuda-toolkit,source=/cuda,target=/usr/local/cuda \
    --mount=type=secret,id=ca-bundle --mount=type=secret,id=pip-config --mount=type=secret,id=netrc <<'SH'
set -eu
pip=$(echo /mnt/pip/pip-*.whl)
# A compiler takes some 7 GiB, a thread of nvcc as much as another compiler.
memory=$(awk '/^MemAvailable/ {print int($2 / 1048576 / 7)}' /proc/meminfo)
MAX_JOBS=$(nproc)
if [ "$memory" -lt "$MAX_JOBS" ]; then MAX_JOBS=$((memory > 0 ? memory : 1)); fi
export MAX_JOBS CMAKE_BUILD_PARALLEL_LEVEL="$MAX_JOBS"
CPATH=$(printf %s: /opt/venv/site-packages/nvidia/*/include)
export CPATH="${CPATH%:}"
NVCC_APPEND_FLAGS=$(cat /opt/build-tools/nvcc-flags)
export NVCC_APPEND_FLAGS
# The driver's library is the host's: what links with it gets one whose functions are empty.
grep -ohE '\<cu[A-Z]\w*' /opt/venv/site-packages/nvidia/*/include/cuda.h /usr/local/cuda/include/cuda.h 2> /dev/null |
    sort -u | sed 's/.*/void & (void) {}/' | gcc -shared -o /opt/cuda-links/libcuda.so -Wl,-soname,libcuda.so.1 -x c -
export FLASH_ATTENTION_FORCE_BUILD='TRUE'
export FLASH_ATTN_CUDA_ARCHS='75;80;90;100;120'
export PIP_CONFIG_FILE=/run/secrets/pip-config NETRC=/run/secrets/netrc PIP_CERT=/run/secrets/ca-bundle
python "$pip/pip" download --quiet --no-cache-dir --disable-pip-version-check --dest /sdist \
    --no-deps --no-build-isolation --use-pep517 --no-binary :all: --require-hashes --requirement /dev/stdin <<'LOCK'
flash-attn==1.0 --hash=sha256:a931cac6a488f7de2b0117815e5b5e97895b83f9a968cc88b7fe6fda029a271a
LOCK
SH

RUN --network=none --mount=type=bind,from=uv,source=/usr/share/python-wheels,target=/mnt/pip \
    --mount=type=bind,from=cuda-toolkit,source=/cuda,target=/usr/local/cuda \
    --mount=type=cache,id=compile-flash-attn,target=/build,sharing=locked <<'SH'
set -eu
pip=$(echo /mnt/pip/pip-*.whl)
# A compiler takes some 7 GiB, a thread of nvcc as much as another compiler.
memory=$(awk '/^MemAvailable/ {print int($2 / 1048576 / 7)}' /proc/meminfo)
MAX_JOBS=$(nproc)
if [ "$memory" -lt "$MAX_JOBS" ]; then MAX_JOBS=$((memory > 0 ? memory : 1)); fi
export MAX_JOBS CMAKE_BUILD_PARALLEL_LEVEL="$MAX_JOBS"
CPATH=$(printf %s: /opt/venv/site-packages/nvidia/*/include)
export CPATH="${CPATH%:}"
NVCC_APPEND_FLAGS=$(cat /opt/build-tools/nvcc-flags)
export NVCC_APPEND_FLAGS
# The driver's library is the host's: what links with it gets one whose functions are empty.
grep -ohE '\<cu[A-Z]\w*' /opt/venv/site-packages/nvidia/*/include/cuda.h /usr/local/cuda/include/cuda.h 2> /dev/null |
    sort -u | sed 's/.*/void & (void) {}/' | gcc -shared -o /opt/cuda-links/libcuda.so -Wl,-soname,libcuda.so.1 -x c -
export FLASH_ATTENTION_FORCE_BUILD='TRUE'
export FLASH_ATTN_CUDA_ARCHS='75;80;90;100;120'
# A compile that was interrupted goes on where it was, if everything is as it was then.
state=$({ sha256sum /sdist/*; env -u MAX_JOBS -u CMAKE_BUILD_PARALLEL_LEVEL; ls /opt/venv/site-packages /opt/build-tools; cat /var/lib/dpkg/status; /usr/local/cuda/bin/nvcc --version; } | sha256sum)
source=/build/${state%% *}
find /build -mindepth 1 -maxdepth 1 ! -path "$source" -exec rm -rf {} +
if [ ! -e "$source" ]; then
    python -c 'import shutil, sys; shutil.unpack_archive(*sys.argv[1:])' /sdist/* /build/unpacked
    mv /build/unpacked/* "$source"
fi
python "$pip/pip" wheel --quiet --no-cache-dir --disable-pip-version-check --wheel-dir /wheels \
    --no-deps --no-build-isolation --use-pep517 "$source"
rm -rf "$source"
SH

FROM scratch AS source-flash-attn
COPY --link --from=build-flash-attn /wheels/ /

# deepspeed 1.0, flash-attn 1.0, installed as every wheel is.
FROM uv AS wheels-from-source
RUN --network=none \
    --mount=type=bind,from=source-deepspeed,target=/mnt/deepspeed \
    --mount=type=bind,from=source-flash-attn,target=/mnt/flash-attn \
    <<'SH'
set -eu
# Without an index, in place of the secret's configuration.
mkdir -p /run/secrets
echo 'no-index = true' > /run/secrets/uv-config
cp /etc/ssl/certs/ca-certificates.crt /run/secrets/ca-bundle
export UV_FIND_LINKS="/mnt/deepspeed,/mnt/flash-attn"
for wheel in /mnt/*/*.whl; do
    echo "$(basename "$wheel" | cut -d- -f1,2 | sed s/-/==/) --hash=sha256:$(sha256sum "$wheel" | cut -d' ' -f1)"
done | wheel-layer x86_64-manylinux_2_35 3.13
SH

FROM with-wheels AS with-source-packages
COPY --link --from=wheels-from-source /layer/ /

# What a process in the image starts with. Nothing here leads a loader: libraries are found through ld.so.conf.d and the
# wheels' own run paths, because a set LD_LIBRARY_PATH is how a wrong NCCL gets loaded.
FROM with-source-packages AS with-environment
ENV PATH=/opt/venv/bin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Where the fabric is not there, NCCL ends with an error, instead of going on over TCP. `describe` says how to lift it.
ENV NCCL_NET="Libfabric" FI_PROVIDER="efa"
WORKDIR /workspace
CMD ["/bin/bash"]

# `rdma-preflight`, which checks a job's nodes and runs its command: plain files of this tool, with fixed times.
FROM with-environment AS image
ADD preflight.tar /
