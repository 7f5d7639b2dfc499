"""Which GPUs the programs of an image hold code for: read from the programs, compared with what the label says."""

import json
import struct
from pathlib import Path

import pytest

from rdma_images.inspection.inspection import Inspection
from rdma_images.validate.probes import elf, fatbin, libraries
from tests.support import validators_called

CASE = Path(__file__).parents[2] / "data" / "cases" / "efa-pytorch.json"
LABEL = "io.rdma-images.nccl-tests.architectures"


def container(*codes: tuple[int, int]) -> bytes:
    """Return a container as nvcc 13.0.88 writes it, with an entry of 24 bytes for each kind and architecture."""
    entries = b"".join(
        struct.pack("<HHIQ", kind, 0x101, 64, 24).ljust(28, b"\0") + struct.pack("<I", number) + bytes(56)
        for kind, number in codes
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def program(path: Path, content: bytes, name: bytes = b".nv_fatbin") -> str:
    """Return an ELF file with `content` in a section of that name, and nothing else."""
    names = b"\0" + name + b"\0.shstrtab\0"
    table = 64 + len(content) + len(names)
    rows = [
        bytes(64),
        struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(content), 0, 0, 8, 0),
        struct.pack("<IIQQQQIIQQ", len(name) + 2, 3, 0, 0, 64 + len(content), len(names), 0, 0, 1, 0),
    ]
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", head, 40, table)
    struct.pack_into("<HHH", head, 58, 64, len(rows), 2)
    path.write_bytes(bytes(head) + content + names + b"".join(rows))
    return str(path)


def test_every_container_of_a_program_is_read(tmp_path: Path) -> None:
    content = container((2, 75), (2, 90)) + bytes(16) + container((2, 120), (1, 120))
    assert fatbin.architectures(program(tmp_path / "a_perf", content)) == ["sm_75", "sm_90", "compute_120", "sm_120"]


def test_a_program_without_gpu_code_has_none(tmp_path: Path) -> None:
    assert fatbin.architectures(program(tmp_path / "a_perf", b"", b".text")) == []
    (tmp_path / "script_perf").write_text("#!/bin/sh\n")
    assert libraries.gpu_code(str(tmp_path / "script_perf")) == []


@pytest.mark.parametrize(
    "content",
    [
        container((2, 90))[:40],
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 60) + bytes(80),
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + struct.pack("<HHIQ", 2, 0, 0, 0) + bytes(48),
        struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0) + bytes(48),
    ],
    ids=["cut short", "beyond its end", "an entry without a size", "a container without a size"],
)
def test_a_damaged_program_is_reported(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(elf.NotElf, match="damaged"):
        fatbin.architectures(program(tmp_path / "a_perf", content))


@pytest.mark.parametrize(
    ("code", "outcome", "expected"),
    [
        ({"/a_perf": ["sm_80", "sm_90", "compute_90"]}, "passed", "1 programs with it"),
        ({"/a_perf": ["sm_80", "sm_90"], "/b_perf": ["sm_80"]}, "failed", "/b_perf has none for sm_90"),
        ({"/a_perf": ["sm_80", "compute_90"]}, "failed", "/a_perf has none for sm_90"),
        ({}, "failed", "no program of nccl-tests"),
    ],
)
def test_the_label_is_held_against_the_programs(code: dict[str, list[str]], outcome: str, expected: str) -> None:
    data = json.loads(CASE.read_text())
    data["subject"]["labels"][LABEL] = "sm_80 sm_90"
    data["measured"]["tree"]["libraries"]["gpu_code"] = code
    checks = validators_called.checks_by_id(Inspection.model_validate(data))
    assert (checks["label.architectures"].outcome, checks["label.architectures"].actual) == (outcome, expected)
