"""Make a wheel's layer in a separate process, for which this module imports little."""

import json
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from fnmatch import translate
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.compression import Compression
from rdma_images.layers import blob
from rdma_images.layers.recipe import PREFIX
from rdma_images.layers.wheel_members import DevelFileMatcher, LayerMember, WheelError, WrongRecordError, layer_members

# Beside the blobs `runtime` and `devel`: what they are, and what they hold.
RECORD_FILE = "layer.json"
LISTING_FILE = "files.json"
# What several wheels bring beside their packages, and nothing installed uses, so that either may be in an image:
# how they were built (flashinfer-python, torch-c-dlpack-ext), and examples (nixl-cu12 and nixl-cu13).
UNUSED_FILE = re.compile(
    rf"{PREFIX}/(?:site-packages/build_backend\.py|bin/(?:nixl_(?:etcd_)?example|telemetry_reader))"
)


@dataclass(frozen=True)
class LayerTask:
    """The inputs of a process that makes one layer."""

    wheels: tuple[tuple[Path, int], ...]  # a wheel's file, and its size by the lock
    patterns: str
    compression: Compression
    folder: Path


def devel_file_matcher(patterns: str) -> DevelFileMatcher:
    """Return a function that says whether a path matches one of `patterns`, a line each."""
    return re.compile("|".join(map(translate, patterns.splitlines()))).match


def process_pool(count: int) -> ProcessPoolExecutor:
    """Return a pool for `make_layer`, whose processes end with this one."""
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _exit_with_build)


def make_layer(task: LayerTask) -> tuple[str, ...]:
    """Make one layer; runs in a separate process.

    A wheel whose RECORD is wrong is taken as pip and uv take it: the lock has the digest of the whole archive, and the
    image's RECORD gets the digests that the files have.

    Returns:
        The names of the wheels with such a RECORD.

    Raises:
        WheelError: A wheel is bad.
        FileError: The disk is full.
    """
    misstated: list[Path] = []
    while True:
        try:
            _make_layer(task, misstated)
        except WrongRecordError as error:
            if error.wheel in misstated:
                raise
            misstated.append(error.wheel)
        else:
            return tuple(wheel.name for wheel in misstated)


def _make_layer(task: LayerTask, misstated: Collection[Path]) -> None:
    """Make one layer, with the digests of the files themselves for the `misstated` wheels."""
    is_devel = devel_file_matcher(task.patterns)
    members = [layer_members(wheel, size, is_devel, wheel in misstated) for wheel, size in task.wheels]
    runtime, devel = merge_members(each.runtime for each in members), merge_members(each.devel for each in members)
    with files.raising_file_error(task.folder):
        listed = {entry.path: (entry.digest, entry.wheel.name) for entry in runtime}
        write_record(task.folder, _blob(runtime, task, "runtime"), _blob(devel, task, "devel"), listed)


def merge_members(wheels: Iterable[Iterable[LayerMember]]) -> list[LayerMember]:
    """Return the entries of several wheels by path, a common file once.

    Raises WheelError for one that two bring with different contents, except for UNUSED_FILE.
    """
    merged_entries: dict[str, LayerMember] = {}
    for entry in (entry for entries in wheels for entry in entries):
        merged_entry = merged_entries.setdefault(entry.path, entry)
        if contents_conflict(entry.path, merged_entry.digest, entry.digest):
            raise collision_error(entry.path, merged_entry.wheel.name, entry.wheel.name)
    return [merged_entries[path] for path in sorted(merged_entries)]


def contents_conflict(path: str, first_digest: str, second_digest: str) -> bool:
    """Return whether two wheels bring a file with different contents that an image may use."""
    return first_digest != second_digest and not UNUSED_FILE.fullmatch(path)


def collision_error(path: str, first: str, second: str) -> WheelError:
    """Return the error for two wheels that cannot be in one image."""
    return WheelError(
        f"{first} and {second} both bring {path}, with different contents\n"
        "leave one out, give no-deps in package-options to what requires it, or choose versions that go together"
    )


def _blob(entries: Sequence[LayerMember], task: LayerTask, part: str) -> blob.Blob:
    with (task.folder / part).open("wb") as file:
        return blob.write(entries, file, task.compression)


def write_record(folder: Path, runtime: blob.Blob, devel: blob.Blob, listed: Mapping[str, tuple[str, str]]) -> None:
    """Write beside the blobs in `folder` what they are and hold."""
    (folder / LISTING_FILE).write_text(json.dumps(listed), encoding="utf-8")
    record = {"runtime": asdict(runtime), "devel": asdict(devel)}
    (folder / RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _exit_with_build() -> None:
    """End this process with its parent, and on Ctrl-C without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
