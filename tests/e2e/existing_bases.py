"""Images like those that teams have: Debian with NVIDIA's real wheels, by digest."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rdma_images import facts
from rdma_images.build.build_secrets import write_secrets
from rdma_images.engine.debian import bootstrap
from rdma_images.inputs import availability, mirrors, sources
from tests.e2e import validated
from tests.support import images

SECRETS = ("apt-config", "apt-sources", "apt-auth", "ca-bundle")
MOUNTS = " ".join(f"--mount=type=secret,id={name},target=/run/secrets/{name},mode=0444" for name in SECRETS)
# A Python of its own in /opt/conda, with NVIDIA's wheel of NCCL and of CUDA's runtime.
CONDA = f"""
RUN {MOUNTS} <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends python3
mkdir -p /opt/conda/bin /opt/conda/lib/python3.13/site-packages
ln -s /usr/bin/python3 /opt/conda/bin/python3
ln -s python3 /opt/conda/bin/python
printf 'home = /usr/bin\\ninclude-system-site-packages = false\\n' > /opt/conda/pyvenv.cfg
rm -rf /var/lib/apt/lists/*
SH
COPY nccl/ runtime/ /opt/conda/lib/python3.13/site-packages/
ENV PATH=/opt/conda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin NVIDIA_VISIBLE_DEVICES=all
WORKDIR /workspace
"""
# As NVIDIA's: HPC-X with a plugin of its own first, CUDA under /usr/local, an entry point, another shell.
NGC = """
SHELL ["/bin/bash", "-c"]
RUN mkdir -p /opt/hpcx/nccl_rdma_sharp_plugin/lib /usr/local/cuda-13.0/lib64 /opt/nvidia \\
 && ln -s cuda-13.0 /usr/local/cuda \\
 && cp /opt/conda/lib/python3.13/site-packages/nvidia/cu13/lib/libcudart.so.13 /usr/local/cuda/lib64/ \\
 && cp /usr/lib/x86_64-linux-gnu/libz.so.1 /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so \\
 && echo /opt/hpcx/nccl_rdma_sharp_plugin/lib > /etc/ld.so.conf.d/000-hpcx.conf && ldconfig \\
 && printf '#!/bin/sh\\nexec "$@"\\n' > /opt/nvidia/nvidia_entrypoint.sh && chmod 755 /opt/nvidia/nvidia_entrypoint.sh
ENV LD_LIBRARY_PATH=/opt/hpcx/nccl_rdma_sharp_plugin/lib:/usr/local/cuda/lib64
ENV NCCL_NET_PLUGIN=/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh"]
"""
USER = """
RUN echo 'trainer:x:1000:1000::/home/trainer:/bin/sh' >> /etc/passwd && echo 'trainer:x:1000:' >> /etc/group \
    && mkdir --parents /home/trainer && chown 1000:1000 /home/trainer
USER 1000
"""
WITHOUT_BASH = "\nRUN rm /bin/bash\n"


SYSTEM = "debian13"
START = f"{validated.REPOSITORY}:{SYSTEM}"


def _docker(*words: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        ["docker", *words], input=stdin, text=True, env=validated.engine().environ(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def start(folder: Path) -> Iterator[None]:
    """Provide, once for all tests, what the images are made from.

    `folder` gets the wheels.
    """
    for wheel in ("nccl", "runtime"):
        validated.wheel(wheel, folder)
    _docker("import", str(bootstrap.base_tar(SYSTEM)), START)
    yield
    _docker("image", "rm", START)


@contextmanager
def base(name: str, steps: str, folder: Path) -> Iterator[str]:
    """Provide an image made from `start` with `steps`, as NAME@sha256:…; removed at the end."""
    tag = f"{validated.REPOSITORY}/{name}:1"
    image = images.planned_image(axes={**images.planned_image().axes, "base": SYSTEM})
    supplies = availability.find_supplies(sources.sources(image, facts.load()), mirrors.load())
    with TemporaryDirectory() as private:
        files = write_secrets(Path(private) / "secrets", supplies, mirrors.load())
        secret_options = [word for secret in SECRETS for word in ("--secret", f"id={secret},src={files[secret]}")]
        build = ["buildx", "build", "--quiet", *validated.into_engine(tag), "--provenance=false", "--network=host"]
        _docker(*build, *secret_options, str(folder), "--file", "-", stdin=f"FROM {START}\n{steps}")
    try:
        yield f"{validated.REPOSITORY}/{name}@{_docker('image', 'inspect', tag, '--format', '{{.Id}}')}"
    finally:
        _docker("image", "rm", "--force", tag)
