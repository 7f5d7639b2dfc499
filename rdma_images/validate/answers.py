"""What the probes printed, read as measurements: an image under test may print anything."""

from collections.abc import Iterable
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from rdma_images.core.plain import plain
from rdma_images.inspection.measurements import PROBES, Measured
from rdma_images.inspection.values import Value


class Answer(Value):
    """What a probe came back with: a value, or why there is none. `seconds` is how long it took."""

    value: Any = None
    error: str = ""
    seconds: float = Field(default=0.0, ge=0)


ANSWERS = TypeAdapter(dict[str, Answer])


def measured(text: bytes, names: Iterable[str]) -> Measured:
    """Return the answers of the probes `asked`, which `text` has as JSON: {probe: {"value", "error", "seconds"}}.

    Nothing in `text` raises: an answer that is not there, or has another form, is lost, with the reason.
    """
    try:
        answers = ANSWERS.validate_json(text)
    except ValidationError as error:
        return lost(names, f"what the probes printed in the image is cut short or damaged: {_first(error)}")
    measurements = Measured(seconds={name: answer.seconds for name, answer in answers.items()})
    for name in names:
        measurements = _with(measurements, name, answers.get(name, Answer(error="the image's answer leaves it out")))
    return measurements


def lost(names: Iterable[str], why: str, measurements: Measured | None = None) -> Measured:
    """Return `found` without what `names` would have measured, which is lost for the reason `why`."""
    measurements, names = measurements or Measured(), tuple(names)
    missing = {**measurements.missing, **dict.fromkeys(names, plain(why))}
    return measurements.model_copy(update={"missing": missing, "lost": (*measurements.lost, *names)})


def _with(measurements: Measured, name: str, answer: Answer) -> Measured:
    """Return `found` with what the probe `name` answered."""
    if answer.value is None and not answer.error and PROBES[name].nothing:
        return measurements.model_copy(update={"missing": {**measurements.missing, name: PROBES[name].nothing}})
    if answer.value is None:
        return lost((name,), answer.error or f"{name} has no value", measurements)
    try:
        value = getattr(Measured.model_validate({name: answer.value}), name)
    except ValidationError as error:
        return lost((name,), f"the image's answer does not have the expected form at {_first(error)}", measurements)
    return measurements.model_copy(update={name: value})


def _first(error: ValidationError) -> str:
    """Return where the first thing is that does not fit, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'its start'}: {first['msg']}"
