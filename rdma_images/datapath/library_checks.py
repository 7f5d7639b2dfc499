"""Check, before any exchange, which libraries programs of the image load and how much memory they may lock."""

import re
import shlex
from collections.abc import Iterable

from rdma_images.core.check import Check
from rdma_images.datapath.checks import CheckDefinition, fail_check, pass_check, skip_check
from rdma_images.datapath.guest import TaskResult
from rdma_images.datapath.guests import TwoGuests, parse_memlock
from rdma_images.datapath.rdma_files import OUTSIDE, ImageRdmaFiles

_DOCUMENT = "https://github.com/linux-rdma/rdma-core/blob/master/Documentation/versioning.md"

LIBIBVERBS = CheckDefinition(
    "libibverbs",
    "Programs get the one libibverbs of the image",
    "one libibverbs.so.1",
    "remove the copies that did not come with the image's rdma-core",
    _DOCUMENT,
)
PROVIDERS = CheckDefinition(
    "providers",
    "Every provider that libibverbs is configured with loads into it",
    "the library of every driver in /etc/libibverbs.d, under the name that libibverbs looks for",
    "install libibverbs and its providers from one rdma-core",
    _DOCUMENT,
)
MEMLOCK = CheckDefinition(
    "memlock",
    "A login of the image's user may lock memory without limit",
    "unlimited",
    "set memlock to unlimited in /etc/security/limits.d, or remove the line there that limits it",
    "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html",
)
DEVICE = CheckDefinition(
    "device",
    "libibverbs opens the RDMA adapter and finds its port active",
    "PORT_ACTIVE",
    "install the provider of the adapter in the version of libibverbs",
    "https://github.com/linux-rdma/rdma-core",
)


def libibverbs(guests: TwoGuests) -> Check:
    """Check that programs are linked to the only libibverbs of the image."""
    files = guests.rdma_files
    if not files.loaded:
        copies = ", ".join(files.copies) or "none"
        return fail_check(LIBIBVERBS, f"a program that needs libibverbs.so.1 gets none; copies in the image: {copies}")
    other_copies = [path for path, digest in files.copies.items() if digest != files.copies.get(files.loaded)]
    if other_copies:
        return fail_check(
            LIBIBVERBS, f"{files.loaded} is loaded, and beside it is another: {', '.join(sorted(other_copies))}"
        )
    return pass_check(LIBIBVERBS, files.loaded)


def providers(guests: TwoGuests) -> Check:
    """Check that the image's own loader loads each configured provider, all its symbols bound."""
    files = guests.rdma_files
    if not files.loaded:
        return skip_check(PROVIDERS, "there is no libibverbs to load them")
    if not files.drivers:
        return fail_check(PROVIDERS, "/etc/libibverbs.d names no driver, so libibverbs finds no device")
    # libibverbs looks in its own folder, and then for the bare name: the folder is where an rdma-core has them.
    patterns = [pattern for pattern in files.patterns if pattern.startswith("/")] or list(files.patterns)
    if not patterns:
        return fail_check(PROVIDERS, f"{files.loaded} has no provider names in it: it is no libibverbs of rdma-core")
    names = {driver: patterns[0].replace("%s", driver) for driver in files.drivers}
    complaints = {driver: _misnamed(driver, files) for driver, path in names.items() if path not in files.providers}
    loadable = {driver: path for driver, path in names.items() if driver not in complaints}
    if _complaint(guests, loadable.values()):  # one by one only where that is worth the time
        complaints |= {driver: said for driver, path in loadable.items() if (said := _complaint(guests, [path]))}
    where = patterns[0].replace("%s", "*")
    if complaints:
        unloadable = "; ".join(
            f"{', '.join(drivers)}: {complaint}" for complaint, drivers in _keys_by_value(complaints).items()
        )
        return fail_check(PROVIDERS, f"of {where}, {unloadable}")
    return pass_check(PROVIDERS, f"{len(names)} as {where}: {', '.join(sorted(names))}")


def _misnamed(driver: str, files: ImageRdmaFiles) -> str:
    """Return what the image has instead of a provider of the name that libibverbs looks for."""
    suffixes = {path.rpartition("-")[2] for path in files.providers if f"/lib{driver}-" in path}
    return f"there only as -{', -'.join(sorted(suffixes))}, for another libibverbs" if suffixes else "missing"


def _keys_by_value(pairs: dict[str, str]) -> dict[str, list[str]]:
    """Return the keys of each value, sorted."""
    return {value: sorted(key for key in pairs if pairs[key] == value) for value in pairs.values()}


def check_memlock(guests: TwoGuests) -> Check:
    """Check what a login of the image's user may lock.

    Everything else in the guests also runs under that limit.
    """
    if guests.login is None:
        return skip_check(MEMLOCK, "the image has no su, so no user can log in")
    allowed = parse_memlock(guests.login)
    if allowed is None:
        return fail_check(MEMLOCK, f"a login of {guests.rdma_files.user[0]} said {_in_one_line(guests.login)}")
    return pass_check(MEMLOCK, allowed) if allowed == "unlimited" else fail_check(MEMLOCK, f"{allowed} KiB")


def device(guests: TwoGuests) -> Check:
    """Check that ibv_devinfo shows the adapter's port active."""
    result = guests.run("exec ibv_devinfo -d rxe0", 20)
    state = re.search(r"state:\s+(\w+)", result.output)
    if result.status == 0 and state and state[1] == "PORT_ACTIVE":
        return pass_check(DEVICE, state[1])
    # libibverbs warns of every provider that it cannot load; this adapter's is the one that matters.
    relevant = [line for line in result.output.splitlines() if "rxe" in line]
    output = _in_one_line(TaskResult(result.status, "\n".join(relevant) or result.output))
    return fail_check(DEVICE, state[1] if state else f"ibv_devinfo said {output}")


def _complaint(guests: TwoGuests, libraries: Iterable[str]) -> str:
    """Return the loader's complaint about loading these into a program of libibverbs; empty where it loads them."""
    preload = ":".join(libraries)
    result = guests.run(f"LD_BIND_NOW=1 LD_PRELOAD={shlex.quote(preload)} exec {OUTSIDE}/ibv_devinfo -l", 30)
    if match := re.search(r"cannot be preloaded \((.*)\)", result.output):
        return match[1]
    # What cannot be ignored, a missing symbol or version, ends the program before it begins.
    return _in_one_line(result) if result.status else ""


def _in_one_line(result: TaskResult) -> str:
    """Return what a program printed, on one line."""
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    return " / ".join(lines)[:300] or f"nothing, and ended with status {result.status}"
