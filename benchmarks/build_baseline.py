"""Build the baseline: base, fabric and wheels of ours, put together as most guides do.

One Dockerfile, `pip install` in a RUN, layers of gzip, nothing shared between images.

python benchmarks/build_baseline.py TARGET [AXIS=VALUE ...]
"""

import re
import sys
from dataclasses import replace

from rdma_images import engine
from rdma_images.build import build_images, build_spec, preflight_folder, run_bake
from rdma_images.core import atomic
from rdma_images.inputs import project, target_options

PYTHON = """FROM base AS with-python
{run} <<'SH'
set -eu
export APT_CONFIG=/run/secrets/apt-config DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends ca-certificates python3 python3-venv
python3 -m venv /opt/venv
SH
"""
WHEELS = """FROM {previous} AS with-wheels
RUN --mount=type=secret,id=ca-bundle --mount=type=secret,id=pip-config --mount=type=secret,id=netrc <<'SH'
set -eu
export PIP_CONFIG_FILE=/run/secrets/pip-config NETRC=/run/secrets/netrc PIP_CERT=/run/secrets/ca-bundle
/opt/venv/bin/pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes \\
    --requirement /dev/stdin <<'LOCK'
{requirements}
LOCK
SH
"""


def main() -> None:
    """Build the baseline of a target, whose axes are chosen as for `invoke build`."""
    target, *axes = sys.argv[1:]
    checkout = project.load()
    (image,) = target_options.chosen_images(checkout, [target], False, axes, True)
    ours = build_spec.build_spec(image, checkout, rehearse=True, compression="gzip")
    theirs = replace(ours, image=replace(image, id=f"baseline-{image.id}", tag=f"baseline-{image.tag}"))
    text = baseline_dockerfile(
        ours.dockerfile.read_text(encoding="utf-8"), [wheel.requirement for wheel in ours.lock.wheels]
    )
    atomic.write(theirs.dockerfile, text)
    preflight_folder.pack(theirs.image)
    build_images.build_specs(
        # Without wheels of its own: pip installs them, and no layers are to be made of them.
        [
            replace(
                theirs, other_inputs=f"baseline {ours.other_inputs}", lock=ours.lock.model_copy(update={"wheels": ()})
            )
        ],
        checkout,
        engine.ensure(),
        run_bake.BuildOptions(rehearse=True, compression="gzip"),
        lambda line: print(line, file=sys.stderr),
    )


def baseline_dockerfile(text: str, requirements: list[str]) -> str:
    """Return our Dockerfile `text` with one RUN of pip in place of the wheels' layers."""
    stages = {_stage_name(stage): stage for stage in re.split(r"(?m)^(?=FROM )", text)}
    del stages[""]  # what comes before the first stage
    apt = stages["with-python"].split("\n", 1)[1].split(" <<'SH'")[0]
    others = ("with-python", "with-wheels", "with-environment")
    fabric = {n: s for n, s in stages.items() if re.match("(with|build)-", n) and n not in others}
    previous = next(reversed(fabric), "with-python")
    wheels = WHEELS.format(previous=previous, requirements="\n".join(requirements))
    return "\n".join((PYTHON.format(run=apt), *fabric.values(), wheels, stages["with-environment"], stages["image"]))


def _stage_name(stage: str) -> str:
    """Return the name of a stage; empty before the first stage."""
    match = re.match(r"FROM .* AS (\S+)\n", stage)
    return match[1] if match else ""


if __name__ == "__main__":
    main()
