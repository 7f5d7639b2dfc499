"""The base score of a CVSS 3 vector. Source: first.org, CVSS v3.1 specification, sections 7.1, 7.4 and appendix A."""

import math

_WEIGHTS = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2},
    "AC": {"L": 0.77, "H": 0.44},
    "UI": {"N": 0.85, "R": 0.62},
    "C": {"H": 0.56, "L": 0.22, "N": 0.0},
    "I": {"H": 0.56, "L": 0.22, "N": 0.0},
    "A": {"H": 0.56, "L": 0.22, "N": 0.0},
}
_PRIVILEGES = {False: {"N": 0.85, "L": 0.62, "H": 0.27}, True: {"N": 0.85, "L": 0.68, "H": 0.5}}


def base_score(vector: str) -> float | None:
    """Return the base score of a vector of CVSS 3.0 or 3.1; None for any other text."""
    head, *metrics = vector.strip().split("/")
    values = dict(metric.partition(":")[::2] for metric in metrics)
    if head not in ("CVSS:3.0", "CVSS:3.1"):
        return None
    try:
        weight = {name: weights[values[name]] for name, weights in _WEIGHTS.items()}
        scope_changed = {"U": False, "C": True}[values["S"]]
        privileges = _PRIVILEGES[scope_changed][values["PR"]]
    except KeyError:
        return None
    iss = 1 - (1 - weight["C"]) * (1 - weight["I"]) * (1 - weight["A"])
    impact = 7.52 * (iss - 0.029) - 3.25 * (iss - 0.02) ** 15 if scope_changed else 6.42 * iss
    if impact <= 0:
        return 0.0
    exploitability = 8.22 * weight["AV"] * weight["AC"] * privileges * weight["UI"]
    return _round_up(min((1.08 if scope_changed else 1.0) * (impact + exploitability), 10))


def _round_up(value: float) -> float:
    """Return the value rounded up to one decimal, as appendix A does it."""
    hundred_thousandths = round(value * 100_000)
    if hundred_thousandths % 10_000 == 0:
        return hundred_thousandths / 100_000
    return (math.floor(hundred_thousandths / 10_000) + 1) / 10
