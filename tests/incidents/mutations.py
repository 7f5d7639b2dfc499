"""Change each comparison of the validators in turn, and list the changes that no case notices.

python -m tests.incidents.mutations [MODULE ...]     such as test_plugin in_use; all modules where none is named
"""

import ast
import copy
import functools
import importlib
import io
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from rdma_images.core.paths import PROJECT, VALIDATORS
from rdma_images.inspection.inspection import Inspection
from tests.incidents import run
from tests.incidents.case import incidents
from tests.support import validators_called

REAL = PROJECT / "tests" / "data" / "cases" / "efa-pytorch.json"
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
Failed = frozenset[tuple[str, str, str]]  # the case, the check that fails for it, and what it says
MESSAGES = ("expected", "actual", "fix")  # arguments of `require`: they decide nothing
NAMED = ("validators/test_*.py", "validate/test_entry.py")
TESTS = sorted(str(path) for name in NAMED for path in (PROJECT / "tests" / "unit").glob(name))


class Mutation(NamedTuple):
    """One change: the module and function that it is in, the expression as it was and as it is now."""

    module: str
    function: str
    was: str
    now: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """What it is called in the list."""
        return f"{self.module}.{self.function}: {self.was} -> {self.now}"


def mutations(module: str, source: str) -> Iterator[Mutation]:
    """Yield every change of a module's source: a comparison turned, `and` for `or`, a `not` left out."""
    tree = ast.parse(source)
    message_ids = {id(part) for node in ast.walk(tree) for part in _message(node)}
    sites = [(node, change) for node in ast.walk(tree) for change in _changes(node)]
    for number, (node, change) in enumerate(sites):
        if id(node) in message_ids:
            continue
        changed = copy.deepcopy(tree)
        twin = [other for other in ast.walk(changed) for _ in _changes(other)][number]
        was = ast.unparse(node)
        change(twin)
        yield Mutation(module, _function_around(tree, node), was, ast.unparse(twin), changed)


def _message(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all that makes up the messages of a call of `require`, or of `pytest.skip`."""
    if isinstance(node, ast.keyword) and node.arg in MESSAGES:
        yield from ast.walk(node.value)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.skip":
        yield from (part for word in node.args for part in ast.walk(word))


def _changes(node: ast.AST) -> list[Callable[[ast.AST], None]]:
    """Return what can be done to a node, in place."""
    if isinstance(node, ast.Compare):
        return [functools.partial(_turn, index=index) for index in range(len(node.ops))]
    if isinstance(node, ast.BoolOp):
        return [_swap]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [_affirm]
    return []


def _turn(node: ast.AST, index: int) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[index] = OPPOSITES[type(node.ops[index])]()


def _swap(node: ast.AST) -> None:
    assert isinstance(node, ast.BoolOp)
    node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()


def _affirm(node: ast.AST) -> None:
    """`not not x`, so that a truth stays a truth."""
    assert isinstance(node, ast.UnaryOp)
    node.operand = ast.UnaryOp(ast.Not(), node.operand)


def _function_around(tree: ast.Module, node: ast.AST) -> str:
    definitions = [item for item in tree.body if isinstance(item, ast.FunctionDef | ast.ClassDef)]
    return next((definition.name for definition in definitions if node in ast.walk(definition)), "")


def failed(cases: Mapping[str, Inspection], modules: Collection[str]) -> Failed:
    """Return each case with each check of the modules that fails for it."""
    return frozenset(
        (name, check.id, f"{check.expected}\n{check.actual}\n{check.fix}")
        for name, case in cases.items()
        for check in validators_called.checks(case, modules=modules)
        if check.outcome == "failed"
    )


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Provide the modules of validators/, one of them changed; they are as they were afterwards."""
    before = {name: module for name, module in sys.modules.items() if name.startswith(("validators", "tests.unit."))}
    for name in before:
        del sys.modules[name]
    try:
        changed = ModuleType(f"validators.{mutation.module}")
        changed.__file__ = str(
            VALIDATORS / f"{mutation.module.replace('.', '/')}.py"
        )  # where pytest looks for the module that it takes
        sys.modules[changed.__name__] = changed
        folder, _, name = changed.__name__.rpartition(".")
        setattr(importlib.import_module(folder), name, changed)
        exec(compile(ast.fix_missing_locations(mutation.tree), changed.__file__, "exec"), vars(changed))
        yield
    finally:
        for name in [name for name in sys.modules if name.startswith(("validators", "tests.unit."))]:
            del sys.modules[name]
        sys.modules.update(before)


def module_name(path: Path) -> str:
    """Return the name of a module of validators/ below it, such as "efa.test_plugin"."""
    return ".".join(path.relative_to(VALIDATORS).with_suffix("").parts)


def survivors(names: list[str]) -> Iterator[tuple[Mutation, bool]]:
    """Yield each mutation of the modules, and whether no case and no test notices it.

    Raises RuntimeError where the tests fail without a mutation: they would tell nothing.
    """
    cases = {name: run.read_image(name, case.image) for name, case in incidents().items()}
    cases |= {f"{name}, fixed": run.read_image(name, case.fixed) for name, case in incidents().items() if case.fixed}
    cases |= {"efa-pytorch": Inspection.model_validate_json(REAL.read_bytes())}
    sources = {module_name(path): path.read_text(encoding="utf-8") for path in sorted(VALIDATORS.rglob("*.py"))}
    for module in names or sources:
        suites = users(module, sources)
        before = failed(cases, suites)
        with mutated(Mutation(module, "", "", "", ast.parse(sources[module]))):
            if not _tests_pass():
                raise RuntimeError(f"tests fail with {module} as it is: {' '.join(TESTS)}")
        for mutation in mutations(module, sources[module]):
            with mutated(mutation):
                survives = failed(cases, suites) == before
                yield mutation, survives and _tests_pass()


def _tests_pass() -> bool:
    """Return whether the tests of the validators pass with the modules as they are."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *TESTS]) == pytest.ExitCode.OK


def users(module: str, sources: Mapping[str, str]) -> list[str]:
    """Return the modules with validators that a module decides: itself, and those that import it."""
    dependents = {module}
    while (
        more := {
            name
            for name, source in sources.items()
            if any(f"validators.{dependent} import" in source for dependent in dependents)
        }
        - dependents
    ):
        dependents |= more
    return sorted(name for name in dependents if name.rpartition(".")[2].startswith("test_"))


def main(names: list[str]) -> None:
    """Print the survivors of the modules, and how many mutations there were."""
    modules = sorted(map(module_name, VALIDATORS.rglob("*.py")))
    if unknown := set(names).difference(modules):
        sys.exit(f"{', '.join(sorted(unknown))}: no module of validators/\nname some of {', '.join(modules)}")
    count, surviving = 0, 0
    for mutation, survives in survivors(names):
        count += 1
        if survives:
            surviving += 1
            print(mutation.name, flush=True)
    print(f"{count} mutations, {surviving} survive")


if __name__ == "__main__":
    main(sys.argv[1:])
