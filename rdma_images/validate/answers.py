"""Read what probes printed as measurements: an image under test may print anything."""

from collections.abc import Iterable
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from rdma_images.core.plain import first_misfit, plain
from rdma_images.inspection.measurements import PROBE_DECLARATIONS, Measured
from rdma_images.inspection.values import MeasuredValue


class ProbeAnswer(MeasuredValue):
    """The answer of a probe: a value, or why there is none. `seconds` is how long it took, before it was stopped."""

    value: Any = None
    error: str = ""
    stopped: bool = False
    seconds: float = Field(default=0.0, ge=0)


ANSWERS = TypeAdapter(dict[str, ProbeAnswer])


def parse_answers(text: bytes, names: Iterable[str]) -> Measured:
    """Return the answers of the probes `names` in a JSON `text`.

    Its form is {probe: {"value", "error", "seconds"}}. Nothing in `text` raises: an answer that is not there, or has
    another form, is lost, with the reason.
    """
    try:
        answers = ANSWERS.validate_json(text)
    except ValidationError as error:
        return mark_lost(names, f"what the probes printed in the image is cut short or damaged: {first_misfit(error)}")
    measurements = Measured(seconds={name: answer.seconds for name, answer in answers.items()})
    for name in names:
        measurements = _with(
            measurements, name, answers.get(name, ProbeAnswer(error="the image's answer leaves it out"))
        )
    return measurements


def mark_lost(names: Iterable[str], why: str, measurements: Measured | None = None) -> Measured:
    """Return `measurements` with the probes `names` lost for the reason `why`."""
    measurements, names = measurements or Measured(), tuple(names)
    missing = {**measurements.missing, **dict.fromkeys(names, plain(why))}
    return measurements.model_copy(update={"missing": missing, "lost": (*measurements.lost, *names)})


def mark_stopped(names: Iterable[str], why: str, measurements: Measured | None = None) -> Measured:
    """Return `measurements` with the probes `names` ended by the clock, for the reason `why`."""
    measurements, names = measurements or Measured(), tuple(names)
    missing = {**measurements.missing, **{name: plain(f"{name} {why}") for name in names}}
    return measurements.model_copy(update={"missing": missing, "stopped": (*measurements.stopped, *names)})


def _with(measurements: Measured, name: str, answer: ProbeAnswer) -> Measured:
    """Return `measurements` with the answer of the probe `name`."""
    if answer.value is None and not answer.error and PROBE_DECLARATIONS[name].nothing:
        return measurements.model_copy(
            update={"missing": {**measurements.missing, name: PROBE_DECLARATIONS[name].nothing}}
        )
    if answer.value is None and answer.stopped:
        return mark_stopped((name,), f"was {answer.error}", measurements)
    if answer.value is None:
        return mark_lost((name,), answer.error or f"{name} has no value", measurements)
    try:
        value = getattr(Measured.model_validate({name: answer.value}), name)
    except ValidationError as error:
        return mark_lost(
            (name,), f"the image's answer does not have the expected form at {first_misfit(error)}", measurements
        )
    return measurements.model_copy(update={name: value})
