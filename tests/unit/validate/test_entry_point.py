"""What an entry point sets for the process that it starts: what is asked, what is read, what is unknown."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import EntryPointChanges, Settings
from rdma_images.validate import entry_point, transport
from tests.support import validators_called

CASE = Path(__file__).parents[2] / "data" / "cases" / "efa-pytorch.json"
START_ENVIRONMENT = {"PATH": os.environ["PATH"], "NCCL_DEBUG": "INFO", "FI_PROVIDER": "efa", "LD_LIBRARY_PATH": ""}


def start_program(program: str) -> tuple[int, bytes, bytes]:
    """Return what is printed where a Python `program` is the entry point."""
    words = [sys.executable, "-c", program]
    return transport.run_with_limits([*words, *entry_point.ECHO_COMMAND], 5.0, START_ENVIRONMENT)


def test_what_the_entry_point_sets_is_read_from_between_its_own_words() -> None:
    program = (
        "import os, sys; print('PATH=banner\\0FI_PROVIDER=tcp\\0'); sys.stdout.flush(); del os.environ['NCCL_DEBUG']; "
        "os.environ.update(FI_PROVIDER='tcp;\\n', NCCL_NET='Socket', HOME='/none'); "
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    environment = entry_point.printed_environment(start_program(program)[1])
    assert environment
    assert environment["HOME"] == "/none"
    assert entry_point.entry_point_changes(environment, START_ENVIRONMENT) == EntryPointChanges(
        given={"FI_PROVIDER": "tcp;\n", "NCCL_NET": "Socket"}, removed=["NCCL_DEBUG"]
    )


def test_an_entry_point_that_hands_over_what_it_got_changes_nothing() -> None:
    environment = entry_point.printed_environment(
        start_program("import os, sys; os.execvp(sys.argv[1], sys.argv[1:])")[1]
    )
    assert environment
    assert entry_point.entry_point_changes(environment, START_ENVIRONMENT) == EntryPointChanges()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; sys.exit('unrecognized arguments:\\x1b ' + sys.argv[1])", r"arguments:\x1b cat"),
        ("print('ready')", "the entry point ended with 0 and started no other command"),
        ("import os; os.write(1, b'/proc/self/cmdline\\0/proc/self/environ\\0/proc/self/cmdline\\0')", "ended with 0"),
    ],
)
def test_an_entry_point_that_starts_nothing_else_is_a_reason(program: str, reason: str) -> None:
    rc, out, err = start_program(program)
    assert entry_point.printed_environment(out) is None
    ended = entry_point.failed_entry_point(rc, out, err)
    assert reason in ended


def test_an_entry_point_that_sleeps_or_is_not_started_is_a_reason() -> None:
    assert "did not start another command in 10 s" in str(entry_point.failed_entry_point(transport.TIMED_OUT, b"", b""))
    refused = b"Error response from daemon: unable to find user nobody-such: no matching entries in passwd file"
    reason = f"the entry point ended with 1 and started no other command: {refused.decode()}"
    assert entry_point.failed_entry_point(1, b"", refused) == reason


@pytest.mark.parametrize("words", [["/bin/sh", "-c"], ["bash", "-lc"], ["/usr/bin/env", "A=b"], ["env"]])
def test_a_shell_is_given_one_line(words: list[str]) -> None:
    out = subprocess.run(
        [*words, *entry_point.command(words)], capture_output=True, check=True, env=START_ENVIRONMENT
    ).stdout
    assert entry_point.printed_environment(out)


def test_what_is_not_known_of_an_entry_point_is_no_fault() -> None:
    inspection = Inspection.model_validate_json(CASE.read_bytes())
    subject = inspection.subject.model_copy(update={"entrypoint": ["/start"]})
    missing = {**inspection.measured.missing, "entry": "the entry point ended with 2"}
    measured = inspection.measured.model_copy(update={"missing": missing})
    checks = validators_called.checks_by_id(inspection.model_copy(update={"subject": subject, "measured": measured}))
    assert checks["environment.harmful"].outcome == "passed"
    assert checks["environment.harmful"].actual == "none (the entry point ended with 2)"
    assert checks["measured.complete"].outcome == "passed"


def test_the_process_that_is_started_is_judged() -> None:
    inspection = Inspection.model_validate_json(CASE.read_bytes())
    variables = {"NCCL_PXN_DISABLE": "1", "NCCL_IB_DISABLED": "1", "NCCL_HOSTID": "a"}
    changes = EntryPointChanges(given=variables, removed=["FI_PROVIDER"])
    also = {"entry": changes, "settings": Settings(assigned=[], absent=[])}
    inspection = inspection.model_copy(update={"measured": inspection.measured.model_copy(update=also)})
    checks = validators_called.checks_by_id(inspection)
    for check, name in (("harmful", "NCCL_HOSTID"), ("slow", "NCCL_PXN_DISABLE")):
        assert checks[f"environment.{check}"].actual.startswith(f"set by the entry point: {name}=")
        assert f"leave {name} out of what its entry point sets" in checks[f"environment.{check}"].fix
    assert "NCCL_IB_DISABLED" in checks["environment.misspelt"].actual
    assert checks["environment.refusal"].outcome == "failed"
    assert (
        checks["environment.refusal"].actual
        == "the label says refuse, and with NCCL_NET=Libfabric NCCL does not refuse TCP"
    )
