"""Bytes for people: of files and downloads in decimal units, of messages, which are powers of two, in binary ones."""

UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def format_bytes(count: float) -> str:
    """Return a number of bytes in three digits or the whole number: 2.77 GB, 12.9 MB, 351 kB, 93 bytes."""
    for unit, factor in UNITS:
        if count >= factor:
            value = count / factor
            return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{count:.0f} bytes"


def format_megabytes(count: float) -> str:
    """Return a number of bytes in whole megabytes, where several are to be compared: 2,965 bytes are 0 MB."""
    return f"{count / 1e6:.0f} MB"


def format_size(count: int) -> str:
    """Return the size of a message as nccl-tests are asked for it: 8 B, 64 KiB, 1.5 MiB, 16 GiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.4g} {unit}"
    return f"{count} B"
