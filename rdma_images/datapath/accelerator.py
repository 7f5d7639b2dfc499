"""Choose whether guests run on KVM or are emulated. It starts one to know: a /dev/kvm that opens may not work."""

import json
import os
import subprocess
from pathlib import Path
from typing import Literal, cast, get_args

from rdma_images.core import atomic
from rdma_images.core.errors import RefusedError
from rdma_images.datapath.kit import Kit

Accelerator = Literal["kvm", "tcg"]

# Names the accelerator instead of finding it out: for tests, and where KVM starts a guest but fails it later.
VARIABLE = "RDMA_IMAGES_ACCELERATOR"

PROBE_SECONDS = 10.0  # with KVM a guest starts and ends in 2 s; a KVM that cannot decode an instruction stops for ever


def choose(kit: Kit) -> Accelerator:
    """Return the fastest accelerator for virtual machines that works here.

    The result of a trial is cached beside the kit until the host's next boot.

    Raises:
        RefusedError: VARIABLE names none of them.
    """
    requested = os.environ.get(VARIABLE)
    for name in get_args(Accelerator):
        if requested == name:
            return cast(Accelerator, name)
    if requested:
        raise RefusedError(f"{VARIABLE} is {requested!r}\nset it to kvm or tcg, or leave it out")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    cache_file = kit.initramfs.parent / "kvm.json"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        probe = json.loads(cache_file.read_text())
    except (FileNotFoundError, ValueError):
        probe = {}
    if probe.get("boot") != boot:
        probe = {"boot": boot, "works": can_start(kit)}
        atomic.write(cache_file, json.dumps(probe))
    return "kvm" if probe["works"] else "tcg"


def can_start(kit: Kit) -> bool:
    """Return whether a guest on KVM reaches its first process, which ends it."""
    command = [*kit.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "256"]
    command += ["-machine", "q35,accel=kvm", "-cpu", "host", "-append", "quiet panic=-1"]
    command += ["-kernel", str(kit.kernel), "-initrd", str(kit.initramfs)]
    command += ["-serial", "stdio"]
    try:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    # A kernel that panics ends the machine with the same status, but says so.
    return process.returncode == 0 and b"panic" not in process.stdout
