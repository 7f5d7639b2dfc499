"""Counts and sizes in words: files and downloads in decimal units, NCCL's messages in binary ones."""

UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def format_bytes(count: float) -> str:
    """Return bytes in three digits: 2.77 GB, 12.9 MB, 351 kB, 93 bytes."""
    for unit, factor in UNITS:
        if count >= factor:
            value = count / factor
            return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{count:.0f} bytes"


def format_megabytes(count: float) -> str:
    """Return bytes in whole megabytes, for sizes that are compared: "0 MB" for 2,965."""
    return f"{count / 1e6:.0f} MB"


def format_size(count: int) -> str:
    """Return a message size as nccl-tests takes it: 8 B, 64 KiB, 1.5 MiB, 16 GiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.4g} {unit}"
    return f"{count} B"


def format_count(number: int, noun: str) -> str:
    """Return "1 node", "2 nodes", for a noun whose plural ends in s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
