"""What the measurements of two guests are taken for."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdma_images import datapath
from rdma_images.datapath import exchange, library_checks, rdma_files, steps
from rdma_images.datapath.checks import CheckDefinition, coverage, fail_check, hardware_checks, pass_check, skip_check
from rdma_images.datapath.disk import ImageDisk
from rdma_images.datapath.guest import GuestError, TaskResult
from rdma_images.datapath.guest_files import GuestFiles
from rdma_images.datapath.guests import GuestSession, TwoGuests, without_refusal

ANSWER = """\
copy aaaa /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.56.1
provider /usr/lib/x86_64-linux-gnu/libibverbs/libefa-rdmav34.so
provider /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so
libfabric /opt/amazon/efa/lib/libfabric.so.1
loaded /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.56.1
pattern /usr/lib/x86_64-linux-gnu/libibverbs/lib%s-rdmav34.so
pattern lib%s-rdmav34.so
driver efa
driver rxe
tool rping /.datapath/bin/rping
tool su /usr/bin/su
user root 0 0
"""


class ScriptedGuest:
    """A guest that answers a script with the first of `answers` whose key is in it."""

    def __init__(self, **answers: TaskResult) -> None:
        self.answers = answers
        self.scripts: list[str] = []

    def run(self, script: str, _seconds: float) -> TaskResult:
        self.scripts.append(script)
        return next((answer for key, answer in self.answers.items() if key in script), TaskResult(0, ""))


def guests(
    text: str = ANSWER, login: TaskResult | None = None, libfabric: TaskResult | None = None, **answers: TaskResult
) -> TwoGuests:
    guest: Any = ScriptedGuest(**answers)
    return TwoGuests(guest, guest, GuestSession({"PATH": "/usr/bin"}), rdma_files.parse(text), login, libfabric)


def test_the_list_of_files_is_read_back() -> None:
    parsed = rdma_files.parse(ANSWER)
    assert parsed.loaded == "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.56.1"
    assert parsed.drivers == ("efa", "rxe")
    assert parsed.is_from_image("su")
    assert not parsed.is_from_image("rping")
    assert not parsed.is_from_image("mpirun")


def test_the_image_user_decides_who_runs_programs() -> None:
    assert rdma_files.collect_command("mpi:staff").startswith("/.datapath/bin/rdma-files mpi ibv_devinfo ")


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("user app 1000 ", ("app", 1000, 0)),
        ("user app x y", ("app", 0, 0)),
        ("user app -1 1e3", ("app", 0, 0)),
        ("user my app 1000 1001", ("my app", 1000, 1001)),
        ("user ", ("root", 0, 0)),
        ("user", ("root", 0, 0)),
        ("provider\nloaded\ncopy\ntool\ndriver\n\n \n", ("root", 0, 0)),
    ],
)
def test_what_files_are_called_and_say_never_stops_the_reader(text: str, user: tuple[str, int, int]) -> None:
    assert rdma_files.parse(text).user == user


def test_a_copy_of_libibverbs_is_not_hidden_by_its_name() -> None:
    odd = library_checks.libibverbs(guests(ANSWER + "copy  /usr/lib/a b?/libibverbs.so.1\n"))
    assert "beside it is another: /usr/lib/a b?/libibverbs.so.1" in odd.actual


def test_a_name_in_the_images_configuration_is_no_command() -> None:
    assert rdma_files.collect_command("$(poweroff)").startswith("/.datapath/bin/rdma-files '$(poweroff)' ")


def test_the_same_libibverbs_in_two_places_is_one() -> None:
    assert library_checks.libibverbs(guests(ANSWER + "copy aaaa /lib64/libibverbs.so.1.14.56.1\n")).outcome == "passed"


def test_no_libibverbs_fails_and_its_providers_are_not_tried() -> None:
    without = "\n".join(line for line in ANSWER.splitlines() if not line.startswith(("copy", "loaded")))
    assert library_checks.libibverbs(guests(without)).outcome == "failed"
    assert library_checks.providers(guests(without)).outcome == "skipped"


def test_a_provider_with_a_missing_symbol_is_named_with_what_the_loader_says() -> None:
    answer = TaskResult(
        127, "ibv_devinfo: symbol lookup error: librxe: undefined symbol: x, version IBVERBS_PRIVATE_34"
    )
    check = library_checks.providers(guests(LD_PRELOAD=answer))
    assert check.outcome == "failed"
    assert "undefined symbol: x" in check.actual


@pytest.mark.parametrize(
    ("login", "outcome", "expected"),
    [
        (TaskResult(0, "unlimited\n"), "passed", "unlimited"),
        (TaskResult(0, "Last login: never\n64\n"), "failed", "64 KiB"),
        (TaskResult(0, "64\nsu: warning: cannot change directory to /home/ml\n"), "failed", "64 KiB"),
        (TaskResult(1, "su: Authentication failure\n"), "failed", "a login of root said su: Authentication failure"),
        (None, "skipped", ""),
    ],
)
def test_what_a_login_may_lock(login: TaskResult | None, outcome: str, expected: str) -> None:
    check = library_checks.check_memlock(guests(login=login))
    assert (check.outcome, check.actual) == (outcome, expected)


def test_a_port_must_be_active_and_the_warning_shown_is_the_adapters() -> None:
    down = TaskResult(0, "hca_id: rxe0\n state: PORT_DOWN (1)\n")
    assert library_checks.device(guests(ibv_devinfo=down)).actual == "PORT_DOWN"
    no_device = TaskResult(255, "Warning: couldn't load driver 'libsiw'\nWarning: couldn't load driver 'librxe'\n")
    assert (
        library_checks.device(guests(ibv_devinfo=no_device)).actual
        == "ibv_devinfo said Warning: couldn't load driver 'librxe'"
    )


OK = TaskResult(0, "done")


@pytest.mark.parametrize(
    ("server", "client", "moved", "fault"),
    [
        (OK, OK, 40, ""),
        (OK, OK, 0, "no packet went through the RDMA adapter"),
        (TaskResult(1, "Couldn't register MR"), None, 0, "the server ended with status 1: Couldn't register MR"),
        (OK, TaskResult(2, "a\nb\nc\n"), 40, "the client ended with status 2: b / c"),
        (
            TaskResult(1, "x"),
            TaskResult(1, "y"),
            4,
            "the server ended with status 1: x; the client ended with status 1: y",
        ),
        (TaskResult(137, "Killed"), OK, 40, "the server was stopped at its time limit"),
        (TaskResult(0, "invalid data in page 3"), OK, 40, "the server received other data than was sent"),
        (OK, None, 0, "the server ended before a client came"),
    ],
)
def test_an_exchange_is_believed_only_with_good_ends_good_data_and_packets(
    server: TaskResult, client: TaskResult | None, moved: int, fault: str
) -> None:
    assert fault in exchange.find_fault(steps.RC, server, client, moved)
    assert bool(fault) == bool(exchange.find_fault(steps.RC, server, client, moved))


def test_the_control_over_tcp_must_not_touch_the_adapter() -> None:
    assert exchange.find_fault(steps.TCP, OK, OK, 0) == ""
    assert "the control went through the RDMA adapter" in exchange.find_fault(steps.TCP, OK, OK, 3)


# What ib_write_bw says on standard error. Source: linux-rdma/perftest, src/perftest_resources.c and write_bw.c
PERFTEST_LOST = """\
 Completion with error at client
 Failed status 12: wr_id 0 syndrom 0x81
scnt=20, ccnt=0
 Failed to complete run_iter_bw function successfully
"""


def test_an_exchange_is_repeated_once_where_a_guest_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine stops an emulated guest for longer than an adapter sends again."""
    lost = TaskResult(1, "Failed status transport retry counter exceeded (12) for wr_id 2")
    of_perftest = TaskResult(1, PERFTEST_LOST)
    for ends, outcome in (
        ([(OK, lost), (OK, OK)], "passed"),
        ([(TaskResult(1, "Couldn't read remote address"), of_perftest), (OK, OK)], "passed"),  # who is left fails, too
        ([(TaskResult(137, ""), OK), (OK, OK)], "passed"),
        ([(OK, lost), (OK, lost)], "failed"),
        ([(OK, TaskResult(0, "invalid data in page 0")), (OK, OK)], "failed"),  # never excused
        ([(OK, TaskResult(1, "Unable to find the device")), (OK, OK)], "failed"),
    ):
        remaining, sent = iter(ends), iter(range(0, 100, 10))
        monkeypatch.setattr(exchange, "_run_both_sides", lambda _lab, _exchange, remaining=remaining: next(remaining))
        monkeypatch.setattr(exchange, "packets", lambda _guest, sent=sent: next(sent))
        assert exchange.perform(guests(), steps.RC).outcome == outcome


def step(subject: CheckDefinition) -> Any:
    return dict(steps.EXCHANGES)[subject]


def test_an_image_without_a_tool_or_a_provider_skips_and_says_so() -> None:
    assert step(steps.WRITE.subject)(guests()).reason == "the image has no ib_write_bw"
    assert step(steps.MSG.subject)(guests()).reason == "the image has no libfabric"
    listed = TaskResult(0, "efa:\n    version: 205.0\ntcp:\n    version: 205.0\n")
    reason = step(steps.MSG.subject)(guests(libfabric=listed)).reason
    assert reason == "the image's libfabric was built without its verbs provider"
    assert step(steps.MPI_SUBJECT)(guests()).reason == "the image has no MPI"


def test_a_session_runs_a_command_with_the_images_environment_and_limit() -> None:
    environment = {"PATH": "/opt/venv/bin:/usr/bin", "WORDS": "it's two", "my.setting": "1"}
    limit, program = GuestSession(environment, uid=1000, gid=1001, memlock="64").script("exec fi_info -l").splitlines()
    assert limit == "ulimit -l 64"
    entered, _, run = program.partition(" -- ")
    assert entered.startswith("exec /bin/capsh --chroot=/image --drop=cap_ipc_lock,")
    assert "--gid=1001 --groups= --uid=1000 --shell=/.datapath/bin/busybox" in entered
    variables = [f"{name}={value}" for name, value in environment.items()]
    assert shlex.split(run) == ["env", "-i", "--", *variables, "/.datapath/bin/sh", "-c", "exec fi_info -l"]


def test_without_a_device_nothing_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = fail_check(library_checks.DEVICE, "no device")
    monkeypatch.setattr(steps, "FILES", ((library_checks.DEVICE, lambda _: broken),))
    lines: list[str] = []
    checks = list(steps.run_steps(guests(), "efa", lines.append))
    assert [check.outcome for check in checks] == ["failed", *["skipped"] * (len(steps.EXCHANGES) + 2)]
    assert checks[1].reason == "no device to try it on: see datapath.device"
    assert lines == [f"datapath: {library_checks.DEVICE.title}: failed"]


def test_a_lost_guest_fails_its_own_check_and_skips_what_was_not_reached() -> None:
    done = [pass_check(library_checks.LIBIBVERBS, "x")]
    checks = steps.after_lost_guest(done, GuestError("guest 192.168.111.1 ended by itself"), "efa")
    assert [check.id for check in checks if check.outcome == "failed"] == ["datapath.guests"]
    assert len({check.id for check in checks}) == len(checks)


def test_every_report_says_what_it_cannot_prove() -> None:
    checks = steps.all_skipped("no emulator", "erdma")
    assert {check.outcome for check in checks} == {"skipped"}
    assert [check.id for check in hardware_checks("erdma")] == ["datapath.erdma-provider", "datapath.gpudirect"]
    assert [check.id for check in hardware_checks("efa")] == ["datapath.efa-srd", "datapath.gpudirect"]
    assert len(hardware_checks(None)) == 3


def test_a_report_claims_what_passed_and_nothing_else() -> None:
    subject = steps.RC.subject
    good = coverage([pass_check(subject, "10 messages"), *hardware_checks("efa")])
    assert "sent and received over RC" in good
    assert "Not validated: messages travel over EFA's SRD" in good
    bad = coverage([fail_check(subject, "x"), skip_check(library_checks.MEMLOCK, "no su")])
    assert "adapter: nothing." in bad
    assert "Failed: two hosts exchange messages" in bad
    assert coverage([]) == ""


def test_no_figure_of_speed_is_in_what_a_passed_exchange_says() -> None:
    words = " ".join(e.subject.expected for e in (steps.RC, steps.RDMA_CM, steps.WRITE, steps.MSG))
    assert not any(unit in words.lower() for unit in ("/s", "usec", "sec", "mbit", "gbit"))


def test_an_image_for_another_machine_is_skipped(tmp_path: Path) -> None:
    disk = replace(ImageDisk(0), architecture="arm64")
    unused: Any = None
    checks = datapath.check(disk, unused, "efa", tmp_path)
    assert {check.outcome for check in checks} == {"skipped"}
    assert "the image is for arm64" in checks[0].reason


@pytest.mark.parametrize("qemu", ["/bin/false", "/nonexistent"])
def test_an_emulator_that_does_not_run_is_not_the_images_fault(qemu: str, tmp_path: Path) -> None:
    broken = GuestFiles(qemu=(qemu,), mkfs=(), tar=(), kernel=Path("vmlinuz"), initramfs=Path("initramfs"))
    checks = datapath.check(ImageDisk(0), broken, "efa", tmp_path)
    assert {check.outcome for check in checks} == {"skipped"}
    assert "the emulator does not run here" in checks[0].reason
    assert not list(tmp_path.iterdir())


def test_what_an_image_insists_on_is_not_asked_of_machines_that_cannot_have_it() -> None:
    assert without_refusal({"PATH": "/usr/bin", "FI_PROVIDER": "efa"}) == {"PATH": "/usr/bin"}
    assert without_refusal({"FI_PROVIDER": "verbs"}) == {"FI_PROVIDER": "verbs"}
