"""The output of nccl-tests by version, with the widths of common.cu and util.cu."""

from collections.abc import Sequence

Row = tuple[int, float, float, float, int]  # bytes, µs, GB/s, GB/s, wrong

ROWS: tuple[Row, ...] = (
    (8, 12.9, 0.0, 0.0, 0),
    (1 << 20, 492.95, 2.13, 2.13, 0),
    (1 << 34, 66132.0, 259.78, 487.09, 0),
)
SIZES = "# nThread 1 nGpus 1 minBytes 8 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 20 validation: 1 "


def upto_2_11(rows: Sequence[Row] = ROWS, redop: bool = True) -> str:
    """Return output without a column `root`.

    `error` is the largest difference. sendrecv and others have no `redop`.
    """
    operation = (("redop", 6),) if redop else ()
    result_columns = (("time", 7), ("algbw", 6), ("busbw", 6), ("error", 5))
    lines = [SIZES, "#", "# Using devices", "#   Rank  0 Pid   9100 on   one device  0 [0x00] Tesla V100-SXM2-32GB"]
    lines += ["#   Rank  1 Pid   9482 on   two device  0 [0x00] Tesla V100-SXM2-32GB", "#"]
    lines += ["# " + _cells(("size", 10), ("count", 12), ("type", 8), *operation, *result_columns, *result_columns)]
    for size, time, algbw, busbw, _ in rows:
        columns = ((_time(time), 7), (f"{algbw:.2f}", 6), (f"{busbw:.2f}", 6))
        before = ((size, 12), (size // 4, 12), ("float", 8), *((("sum", 6),) if redop else ()))
        lines.append(_cells(*before, *columns, ("5e-07", 5), *columns, ("N/A", 5)))
    return "\n".join([*lines, *_footer()])


def from_2_13(
    rows: Sequence[Row] = ROWS, timestamps: bool = False, per_iteration: bool = False, cputime: bool = False
) -> str:
    """Return output with `root` and `#wrong`.

    -S adds a timestamp (2.17.6), -I four columns to each half (2.19.2).
    """
    iteration_columns = (("i_min", 7), ("i_max", 7), ("i_p99", 7), ("i_cv%", 7)) if per_iteration else ()
    result_columns = (
        ("cputime" if cputime else "time", 7),
        ("algbw", 6),
        ("busbw", 6),
        ("#wrong", 6),
        *iteration_columns,
    )
    names = (("size", 10), ("count", 12), ("type", 8), ("redop", 6), ("root", 6))
    lines = ["# nccl-tests version 2.20.0 (b4d5bee) nccl-headers=23102 nccl-library=23102"]
    lines += ["# Collective test starting: all_reduce_perf", SIZES, "#", "# Using devices"]
    lines += ["#  Rank  0 Group  0 Pid   2474 on        one device  0 [0000:00:06] NVIDIA H200"]
    lines += ["#  Rank  1 Group  0 Pid   2475 on        two device  1 [0000:00:07] NVIDIA H200", "#"]
    lines += ["# " + _cells(*names, *result_columns, *result_columns, *((("timestamp", 19),) if timestamps else ()))]
    for size, time, algbw, busbw, wrong in rows:
        columns = ((_wide(time, 7), 7), (_wide(algbw, 6), 6), (_wide(busbw, 6), 6), (wrong, 6))
        columns = (*columns, *(((_wide(time, 7), 7),) * 4 if per_iteration else ()))
        before = ((size, 12), (size // 4, 12), ("float", 8), ("sum", 6), ("-1", 6))
        lines.append(_cells(*before, *columns, *columns, *((("2026-11-22 06:00:00", 19),) if timestamps else ())))
    return "\n".join([*lines, *_footer()])


def _cells(*cells: tuple[object, int]) -> str:
    return "  ".join(str(value).rjust(width) for value, width in cells)


def _time(value: float) -> str:
    return f"{value:.{0 if value >= 1e4 else 1 if value >= 1e2 else 2}f}"


def _wide(value: float, width: int) -> str:
    """getFloatStr of 2.17.3: fewer decimals, then an exponent, where a number is too wide."""
    forms = (f"{value:.2f}", f"{value:.1f}", f"{value:.0f}", f"{value:.1e}" if width >= 7 else f"{value:.0e}")
    return next((columns for columns in forms if len(columns) <= width), forms[-1])


def _footer() -> list[str]:
    return ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 92.3405 ", "#", ""]
