"""Call static validators one by one, which a session of pytest does 20 times slower.

tests/unit/validators/test_validators_called.py compares what they say here with what they say in a session.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from _pytest.fixtures import FixtureFunctionDefinition

from rdma_images.core.check import Check, Outcome
from rdma_images.core.paths import VALIDATORS
from rdma_images.inspection.inspection import Inspection
from rdma_images.validate import check_folders, pytest_plugin
from rdma_images.validate.pytest_plugin import Requirement, UnmetError

MODULES = sorted(".".join(path.relative_to(VALIDATORS).with_suffix("").parts) for path in VALIDATORS.rglob("test_*.py"))


class Validator(NamedTuple):
    """A validator: its mark, and the names of the fixtures that it uses."""

    module: ModuleType
    function: Callable[..., None]
    id: str
    about: dict[str, Any]
    uses: tuple[str, ...]


def checks(
    inspection: Inspection, only: Collection[str] | None = None, modules: Collection[str] = MODULES
) -> list[Check]:
    """Return what the static validators that an image gets say of it.

    Where `only` is given, those of these ids.
    """
    folders = check_folders.folder_reasons(set(map(folder_of, modules)), inspection)
    return [
        _check(validator, inspection)
        for name in modules
        for validator in _validators(importlib.import_module(f"validators.{name}"))
        if folder_of(name) in folders and (only is None or validator.id in only)
        if (when := validator.about.get("when")) is None or when(inspection)
    ]


def folder_of(module: str) -> str:
    """Return the folder of validators/ that a module lies in."""
    return module.rpartition(".")[0]


@functools.cache
def _validators(module: ModuleType) -> tuple[Validator, ...]:
    validators = []
    for name, function in vars(module).items():
        marks = getattr(function, "pytestmark", []) if name.startswith("test_") else []
        uses = tuple(fixture for mark in marks if mark.name == "usefixtures" for fixture in mark.args)
        for mark in marks:
            if mark.name == "validator" and mark.kwargs.get("tier", "static") in ("static", "any"):
                validators.append(Validator(module, function, mark.args[0], mark.kwargs, uses))
    return tuple(validators)


def _check(validator: Validator, inspection: Inspection) -> Check:
    require, reason = Requirement(), ""
    outcome: Outcome = "passed"
    try:
        _call(validator, {"inspection": inspection, "require": require})
    except pytest.skip.Exception as skipped:
        outcome, reason = "skipped", str(skipped)
    except UnmetError:
        outcome = "failed"
    except Exception as error:
        outcome, require.actual = "failed", f"the validator itself failed: {type(error).__name__}: {error}"
        require.fix = "report this as a defect, with report.json"
    return Check(
        id=validator.id,
        title=str(validator.function.__doc__).splitlines()[0].rstrip("."),
        tier="static",
        severity=require.severity or validator.about.get("severity", "error"),
        outcome=outcome,
        expected=require.expected,
        actual=require.actual,
        fix=require.fix if outcome == "failed" else "",
        reason=reason,
        source=validator.about["source"],
    )


def _call(validator: Validator, values: dict[str, object]) -> None:
    """Call a validator; `values` are those of fixtures by name."""
    for name in validator.uses:
        _value(validator.module, name, values)
    validator.function(**{name: _value(validator.module, name, values) for name in _parameters(validator.function)})


def _value(module: ModuleType, name: str, values: dict[str, object]) -> object:
    """Return the value of a fixture of the module or of the validators' plugin, made once."""
    if name not in values:
        fixture = getattr(module, name, None) or getattr(pytest_plugin, name)
        assert isinstance(fixture, FixtureFunctionDefinition), name
        function = fixture._get_wrapped_function()
        values[name] = function(**{parameter: _value(module, parameter, values) for parameter in _parameters(function)})
    return values[name]


@functools.cache
def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def passed(validator: Any, *arguments: Any) -> str:
    """Return what a validator finds where it passes."""
    require = Requirement()
    validator(*arguments, require)
    return require.actual
