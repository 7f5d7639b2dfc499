# efa-nccl-tests-2.20.0-cu13.0-nccl2.30.7-efa1.50.0-gdr2.6-ofi1.21.1-py3.13-debian13
# Rendered from dockerfiles/targets/efa-nccl-tests.j2; a change belongs there, or into matrix.yaml.
#   base debian13
#   python 3.13, by base
#   cuda 13.0
#   nccl 2.30.7
#   efa-installer 1.50.0
#   gdrcopy 2.6
#   aws-ofi-nccl 1.21.1, by efa-installer
#   nccl-tests 2.20.0
#   libfabric 2.6.0amzn1.0, by efa-installer
#   rdma-core 64.0, by efa-installer

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

# CUDA 13.0's compiler and headers, from wheels, in the layout of a toolkit: to be mounted where something is compiled.
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

# GDRCopy 2.6: its library and header. The kernel module, gdrdrv, is the host's.
FROM with-efa-installer AS build-gdrcopy
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
FROM with-efa-installer AS with-gdrcopy
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

# ssh, over which mpirun starts its ranks on other nodes. Keys come from whoever starts the containers, as Kubernetes' MPI
# operator does it; none is in the image.
FROM with-gdrcopy AS with-ssh
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

# nvidia-nccl-cu13 2.30.7: 250 MB to download.
FROM uv AS wheel-nvidia-nccl-cu13
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 <<'LOCK'
nvidia-nccl-cu13==2.30.7 --hash=sha256:21b160cbe748c4645719d30961701123992f1171e8807b9425ccf51588e3d01c
LOCK

# nvidia-cuda-runtime 13.0.96: 1 MB to download.
FROM uv AS wheels-small
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=uv-config --mount=type=secret,id=netrc \
    wheel-layer x86_64-manylinux_2_35 <<'LOCK'
nvidia-cuda-runtime==13.0.96 --hash=sha256:f0b7f84f386947f9c76ed8efc71c3c874c7937e0be48bcea414c736aa3465b2f
LOCK

# cuda 13.0, nccl 2.30.7: 2 layers, the largest first, so that a pull runs in parallel from its start.
# The build makes these layers itself, once for all images and engines, and hands them over as the context `wheels`,
# which then stands for this stage; without that context the stages above make the same files.
FROM scratch AS wheels
COPY --link --from=wheel-nvidia-nccl-cu13 /layer/ /
COPY --link --from=wheels-small /layer/ /

# Everything that is not a wheel: built while the wheels' layers are made.
FROM with-ssh AS system

# The same as a layer. No other stage needs it: the build has the image's upper layer copied and compressed meanwhile.
FROM scratch AS system-layer
COPY --link --from=system / /

# The wheels lie below the system and the fabric: an engine unpacks again whatever is above a change, so that a new EFA
# installer or base is 0.2 GB to a node that has the image, and not every wheel once more.
FROM wheels AS with-wheels
COPY --link --from=system / /

# nccl-tests 2.20.0, compiled against the very NCCL 2.30.7 of the image, with MPI to start it on many nodes.
# Real code for sm_75 sm_80 sm_90 sm_100 sm_120, and PTX of the newest for GPUs that come later.
FROM with-wheels AS build-nccl-tests
RUN --mount=type=bind,from=nccl-tests,target=/mnt/nccl-tests \
    --mount=type=bind,from=cuda-toolkit,source=/cuda,target=/usr/local/cuda \
    --mount=type=cache,id=apt-archives-debian13,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=apt-lists-debian13,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt-config,target=/run/secrets/apt-config,mode=0444 \
    --mount=type=secret,id=apt-sources,target=/run/secrets/apt-sources,mode=0444 \
    --mount=type=secret,id=apt-auth,target=/run/secrets/apt-auth,mode=0444 \
    --mount=type=secret,id=ca-bundle,mode=0444 <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends g++ make 
mkdir -p /tmp/build /tmp/nccl/lib
tar --extract --gzip --file /mnt/nccl-tests/*.tar.gz --directory /tmp/build --strip-components=1 --no-same-owner
# What the compiler's -lnccl looks for, and the wheel has not.
ln -s /opt/venv/site-packages/nvidia/nccl/include /tmp/nccl/include
ln -s /opt/venv/site-packages/nvidia/nccl/lib/libnccl.so.2 /tmp/nccl/lib/libnccl.so
# Files at once, and of each file architectures at once: alone, alltoall.cu takes as long as all others together. The
# compiler's largest process took 0.56 GiB (benchmarks/compile_nccl_tests.py).
at_once=$(nproc)
memory=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
while [ "$at_once" -gt 1 ] && [ $((at_once * (at_once < 5 ? at_once : 5) * 6 / 10)) -gt "$memory" ]; do
    at_once=$((at_once - 1))
done
# verifiable.cu says whether what arrived is right, outside of what is timed: fast-compiled it takes a quarter of the time.
# Where the compiler cannot (13.0.88 crashes for sm_120 at the level mid, and not at max), it is compiled like all others.
cat > /tmp/nvcc <<'NVCC'
#!/bin/sh
case "$*" in *verifiable.cu*) /usr/local/cuda/bin/nvcc --Ofast-compile=max "$@" && exit ;; esac
exec /usr/local/cuda/bin/nvcc "$@"
NVCC
chmod +x /tmp/nvcc
# What the tests' own kernels hold of NCCL's GPU-initiated networking; for everything else, NCCL's header decides.
cat > /tmp/gin.h <<'HEADER'
#define NCCL_GIN_GDAKI_ENABLE 0
#define NCCL_GIN_GPI_ENABLE 0
#if __CUDA_ARCH__ != 900 && __CUDA_ARCH__ != 1000
#define NCCL_GIN_EFA_GDA_ENABLE 0
#endif
HEADER
# The programs carry where their NCCL is, so that no other one can be in its place.
export NVCC_APPEND_FLAGS="--threads=$at_once --pre-include=/tmp/gin.h -Xlinker -rpath=/opt/venv/site-packages/nvidia/nccl/lib:/opt/amazon/openmpi/lib"
make --directory /tmp/build --jobs="$at_once" NVCC_GENCODE="-gencode=arch=compute_75,code=sm_75 -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_100,code=sm_100 -gencode=arch=compute_120,code=sm_120 -gencode=arch=compute_120,code=compute_120" MPI=1 MPI_HOME=/opt/amazon/openmpi \
    CUDA_HOME=/usr/local/cuda NVCC=/tmp/nvcc CUDARTLIB=cudart_static NCCL_HOME=/tmp/nccl
install -D --target-directory=/opt/nccl-tests/bin /tmp/build/build/*_perf
find /opt/nccl-tests -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
SH

FROM with-wheels AS with-nccl-tests
COPY --from=build-nccl-tests /opt/nccl-tests /opt/nccl-tests
# Root may start mpirun without an option, as in the commands of other images' jobs.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# What a process in the image starts with. Nothing here leads a loader: libraries are found through ld.so.conf.d and the
# wheels' own run paths, because a set LD_LIBRARY_PATH is how a wrong NCCL gets loaded.
FROM with-nccl-tests AS with-environment
ENV PATH=/opt/venv/bin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/opt/nccl-tests/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Where the fabric is not there, NCCL ends with an error, instead of going on over TCP. `describe` says how to lift it.
ENV NCCL_NET="Libfabric" FI_PROVIDER="efa"
WORKDIR /workspace
CMD ["/bin/bash"]

# `rdma-preflight`, which checks a job's nodes and runs its command: plain files of this tool, with fixed times.
FROM with-environment AS image
ADD preflight.tar /
