"""What ended a job, by the structure of its log: public logs, and each structure by itself."""

from pathlib import Path

import pytest
import yaml

from rdma_images.core import paths
from rdma_images.jobs.results import logs
from rdma_images.nccl_logs.job_failure import JobFailure
from rdma_images.nccl_logs.verdict import Verdict, judge_lines, load_wordings

SAMPLES = paths.PROJECT / "tests" / "incidents" / "samples"
REPORTS = {
    report["source"]: report
    for name in ("2026-11-26-logs.yaml", "2026-11-26-logs-3.yaml")
    for report in yaml.safe_load((SAMPLES / name).read_text())
}
HELD_OUT = yaml.safe_load((SAMPLES / "2026-11-26-logs-held-out.yaml").read_text())
HELD_OUT_3 = yaml.safe_load((SAMPLES / "2026-11-26-logs-3-held-out.yaml").read_text())


def verdict_on(*lines: str) -> Verdict:
    return judge_lines(lines, load_wordings())


@pytest.mark.parametrize("source", REPORTS)
def test_what_ended_a_public_job_is_reported(source: str) -> None:
    report = REPORTS[source]
    result = verdict_on(*report["lines"])
    assert [word for word in report["told"] if word not in result.sentence] == []
    assert not result.good


def test_an_image_that_was_not_imported_has_its_reason_in_a_later_line() -> None:
    """From pyxis issue 53: the first line says what was not done, and not why."""
    prefix = "slurmstepd: error: pyxis: "
    lines = ("failed to import docker image", "    [INFO] Creating", "    Write failed because No space left on device")
    assert "No space left on device" in job_failure(*(f"{prefix}{line}" for line in lines)).why


def test_an_error_number_of_libfabric_is_not_the_systems() -> None:
    """From aws-ofi-nccl issue 20; FI_EIO has the words of EIO."""
    failure = job_failure("Unable to write to EQ: Missing or unavailable event queue. err: Input/output error (5)")
    assert failure.why.startswith("a call of libfabric failed")


def test_an_interface_that_other_nodes_do_not_reach_is_named_before_what_is_not_in_the_image() -> None:
    """From pytorch issue 68893."""
    start = "n1:1:2 [0] NCCL INFO NET/Socket : Using [0]ens5:192.0.2.1<0> [1]vethe2e6725:fe80::1%vethe2e6725<0>"
    library = "n1:1:2 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]"
    sentence = verdict_on(library, start, "n1:1:2 [0] NCCL INFO Using network Socket").sentence
    assert sentence.index("the interface vethe2e6725") < sentence.index("libibverbs.so.1")


def test_words_of_any_program_are_probable_unless_an_exception_has_them() -> None:
    line = "error: Domain socket directory /var/spool/slurmd: No such file or directory"
    assert job_failure(line).sentence.startswith("probably a file or folder is not there")
    assert job_failure(f"OSError: {line}").sentence.startswith("a file or folder is not there")


@pytest.mark.parametrize(
    "line",
    [
        "WARNING 07-18 10:20:30 scheduler.py:700] Sequence group 12 is preempted by PreemptionMode.RECOMPUTE mode",
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        "nvlink error   : Undefined reference to 'a' in 'b.o'",
    ],
)
def test_no_certain_end_is_read_from_words_with_another_meaning(line: str) -> None:
    failure = verdict_on(line).failure
    assert not failure or not (failure.has_ended or failure.why)


def test_a_message_between_lines_of_dashes_is_read_as_one() -> None:
    text = ("No components were able to be", "opened in the pml framework.", "", "  Host:      n1")
    assert job_failure("-" * 74, *text, "-" * 74).quote == "No components were able to be opened in the pml framework."
    assert verdict_on("-" * 74, "all is well", "-" * 74).failure is None


FRAME = '  File "/srv/train.py", line 12, in <module>'
LIBRARY = '  File "/venv/lib/python3.12/site-packages/datasets/builder.py", line 5, in train'
TRACEBACK = "Traceback (most recent call last):"


def job_failure(*lines: str) -> JobFailure:
    failure = verdict_on(*lines).failure
    assert failure
    return failure


def test_the_jobs_own_code_is_not_the_network() -> None:
    failure = job_failure(TRACEBACK, FRAME, "    x = batch['labels']", "KeyError: 'labels'")
    assert (failure.quote, failure.network) == ("KeyError: 'labels'", False)
    assert failure.layer == "the job's own code, train.py, line 12"


def test_a_library_is_named_with_the_line_that_called_it() -> None:
    failure = job_failure(TRACEBACK, FRAME, LIBRARY, "ValueError: bad config")
    assert failure.layer == "the library datasets, called by train.py, line 12"


@pytest.mark.parametrize(
    ("link", "quote"),
    [
        ("During handling of the above exception, another exception occurred:", "RuntimeError: second"),
        ("The above exception was the direct cause of the following exception:", "LookupError: first"),
    ],
)
def test_of_a_chain_the_exception_counts_that_says_why(link: str, quote: str) -> None:
    chain = (TRACEBACK, FRAME, "LookupError: first", "", link, "", TRACEBACK, FRAME, "RuntimeError: second")
    assert job_failure(*chain).quote == quote
    resolver_chain = (*chain[:2], "socket.gaierror: [Errno -2] Name or service not known", *chain[3:])
    assert job_failure(*resolver_chain).quote.startswith("socket.gaierror")


def test_a_traceback_in_a_message_is_its_cause() -> None:
    lines = ("RuntimeError: the actor did not start:", "", TRACEBACK, FRAME, "ModuleNotFoundError: No module named 'x'")
    assert "the Python module x is not in the image" in job_failure(TRACEBACK, LIBRARY, *lines).why


def test_what_a_child_of_torch_multiprocessing_raised_is_the_cause() -> None:
    lines = ("torch.multiprocessing.spawn.ProcessRaisedException: ", "")
    report = (
        "-- Process 1 terminated with the following error:",
        TRACEBACK,
        FRAME,
        "OSError: [Errno 28] No space left on device",
    )
    failure = job_failure(TRACEBACK, FRAME, *lines, *report)
    assert "a disk is full" in failure.why


def test_tracebacks_of_ranks_that_are_mixed_are_read_apart() -> None:
    rank_1_lines = [f"[rank1]: {line}" for line in (TRACEBACK, FRAME, "ValueError: of one")]
    rank_2_lines = [f"[rank2]: {line}" for line in (TRACEBACK, LIBRARY, "TypeError: of two")]
    mixed = [line for pair in zip(rank_2_lines, rank_1_lines, strict=True) for line in pair]
    failure = job_failure(*mixed)
    assert (failure.rank, failure.quote) == ("2", "TypeError: of two")


def test_torchruns_first_failure_decides_which_rank_counts() -> None:
    rank_1_lines = [f"[rank1]: {line}" for line in (TRACEBACK, FRAME, "ValueError: of one")]
    rank_2_lines = [f"[rank2]: {line}" for line in (TRACEBACK, FRAME, "ValueError: of two")]
    block = [
        *("Root Cause (first observed failure):", "[0]:", "  time      : 2026-03-25_20:57:27", "  host      : node7"),
        *("  rank      : 2 (local_rank: 2)", "  exitcode  : 1 (pid: 2630)", "  error_file: <N/A>"),
        *("  traceback : To enable traceback see: https://pytorch.org", "=========="),
    ]
    failure = job_failure(*rank_1_lines, *rank_2_lines, *block)
    assert (failure.rank, failure.node, failure.quote) == ("2", "node7", "ValueError: of two")


def test_of_torchruns_blocks_the_earliest_counts() -> None:
    lines: list[str] = []
    for time, rank, code in (("45:52", 0, -15), ("45:01", 4, -9)):
        lines += [
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            "Root Cause (first observed failure):",
        ]
        lines += [
            f"  time      : 2026-06-03_22:{time}",
            "  host      : gpu187",
            f"  rank      : {rank} (local_rank: 0)",
        ]
        lines += [f"  exitcode  : {code} (pid: 1)", "  error_file: <N/A>", "  traceback : -", "====="]
    failure = job_failure(*lines)
    assert (failure.rank, failure.node) == ("4", "gpu187")
    assert "SIGKILL" in failure.why


@pytest.mark.parametrize(
    ("works", "sentence"),
    [
        ({0: (7, "ALLREDUCE"), 1: (7, "ALLREDUCE")}, "ranks 0, 1 waited"),
        ({0: (7, "ALLREDUCE"), 1: (6, "ALLGATHER")}, "rank 1 was the furthest behind, in number 6"),
        ({0: (7, "ALLREDUCE"), 1: (7, "BROADCAST")}, "in different operations, ALLREDUCE, BROADCAST"),
    ],
)
def test_a_hang_names_who_waited(works: dict[int, tuple[int, str]], sentence: str) -> None:
    lines = [
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={name}, NumelIn=1, Timeout(ms)=600000) ran for 600020 milliseconds"
        for rank, (number, name) in works.items()
    ]
    assert sentence in job_failure(*lines).why
    size = "node:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 3 cudaDev 0 - Init START"
    if "waited" in sentence[-6:]:
        assert "and rank 2 did not report" in job_failure(size, *lines).why


def test_what_ended_first_counts_before_its_effects() -> None:
    effects = ("RuntimeError: Connection reset by peer", "srun: error: n1: task 3: Exited with exit code 1")
    failure = job_failure(*effects, "[rank0]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    assert (failure.rank, failure.network) == ("0", False)
    assert "a GPU has not enough memory" in failure.why
    assert job_failure(*effects).is_effect


def test_an_exception_long_before_the_end_was_caught() -> None:
    caught = (TRACEBACK, FRAME, "ImportError: cannot import name 'fast' from 'kernels'")
    quiet = [f"step {n}" for n in range(300)]
    failure = job_failure(*caught, *quiet, TRACEBACK, FRAME, "ValueError: loss is nan")
    assert failure.quote == "ValueError: loss is nan"


def test_warnings_are_no_cause_where_something_failed() -> None:
    warning = (
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-0]:29500 "
        "(errno: 111 - Connection refused)."
    )
    assert "does not reach the first one at node-0, port 29500" in job_failure(warning).why
    assert job_failure(warning, TRACEBACK, FRAME, "KeyError: 'x'").quote == "KeyError: 'x'"


@pytest.mark.parametrize(
    "lines",
    [
        (TRACEBACK, FRAME, "ImportError: libcudart.so.12: cannot open shared object file", "step 1 loss 0.3"),
        ("[rank0]:[W socket.cpp:601] [c10d] The client socket has failed to connect to [n]:1 (errno: 111).",),
    ],
)
def test_a_job_that_goes_on_has_not_ended(lines: tuple[str, ...]) -> None:
    """A caught exception or a warning makes no network bad."""
    channels = [
        "node:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)",
        "node:1:1 [0] NCCL INFO Channel 00/0 : 3[3] -> 14[6] [send] via NET/Libfabric/3/GDRDMA",
    ]
    result = verdict_on(*lines, *channels)
    assert (result.network, result.good, "failure" in result.sentence) == ("efa", True, False)
    assert verdict_on(*lines).exit_code == 3


def test_a_job_on_a_good_network_that_ended_says_why() -> None:
    channels = [
        "node:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)",
        "node:1:1 [0] NCCL INFO Channel 00/0 : 3[3] -> 14[6] [send] via NET/Libfabric/3/GDRDMA",
    ]
    ended = ("slurmstepd: error: *** JOB 12 ON node3 CANCELLED AT 2026-08-31T18:04:42 DUE TO TIME LIMIT ***",)
    result = verdict_on(*channels, *ended)
    assert result.good
    assert "the job ended: the scheduler ended it at its time limit (on node3" in result.sentence
    assert result.exit_code == 1


def test_a_closed_rendezvous_is_no_unreachable_node() -> None:
    """torch/distributed/elastic/rendezvous/dynamic_rendezvous.py raises it for a rendezvous that an agent closed."""
    failure = job_failure("torch.distributed.elastic.rendezvous.api.RendezvousClosedError")
    assert failure.why.startswith("torchrun's rendezvous was closed before this node joined")


def test_a_name_that_torchruns_first_node_gives_and_others_do_not_resolve() -> None:
    """The words are those of torch/csrc/distributed/c10d/socket.cpp; pytorch issue 150532 is such a job."""
    name = "[W socket.cpp:752] [c10d] The IPv4 network addresses of (node-0.internal, 36123) cannot be retrieved"
    failure = job_failure(f"{name} (gai error: -2 - Name or service not known).")
    assert failure.why.startswith("a node does not resolve node-0.internal, ")
    assert "--local-addr" in failure.why


@pytest.mark.parametrize(
    "line",
    [
        "libfabric:21:1722447956::core:core:cuda_hmem_dl_init():499<warn> Failed to dlopen libnvidia-ml.so.",
        "libfabric:22:1722447956::core:core:cuda_gdrcopy_hmem_init():192<warn> gdrcopy_dl_hmem_init failed!",
        "[W socket.cpp:558] [c10d] The client socket has failed to connect to [localhost]:12355 (errno: 99 - Cannot "
        "assign requested address).",
        "slurmstepd: error: xcpuinfo_hwloc_topo_load: failed (load will be required after read failures).",
        "slurmstepd: error: Could not run slurm task_prolog [/nfs/taskprolog]: No such file or directory",
        "slurmstepd: error: TMPDIR [/scratch-local/user] is not writeable",
        "W0916 17:38:41.930000 139955215721408 torch/distributed/run.py:757] Setting OMP_NUM_THREADS environment",
        "libfabric:72089:core:core:fi_getinfo_():889<warn> fi_getinfo: provider ofi_mrail returned -61 (No data)",
        "[0]:wandb: ERROR Failed to sample metric: No such file or directory",
        "WARNING: No preset parameters were found for the device that Open MPI detected:",
        "step 12 error: 0.031 failed requests: 0 killed: 0",
    ],
)
def test_what_jobs_that_succeed_print_ends_none(line: str) -> None:
    """From public logs of jobs that went on: aws-k8s-tester 464, pyxis 29, LlamaFactory 5450, aws/libfabric 3."""
    channels = [
        "node:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)",
        "node:1:1 [0] NCCL INFO Channel 00/0 : 3[3] -> 14[6] [send] via NET/Libfabric/3/GDRDMA",
    ]
    assert verdict_on(line).network == "unknown"
    healthy = verdict_on(line, *channels)
    assert (healthy.good, healthy.sentence) == (True, verdict_on(*channels).sentence)


@pytest.mark.parametrize(
    ("address", "description"),
    [
        ("169.254.0.1:4", "169.254.0.1 is link-local"),
        ("172.17.0.2:4", "172.17.0.2 is of Docker's bridge"),
        ("localhost:4", "localhost is each node itself"),
        ("192.0.2.1:4", ""),
    ],
)
def test_an_address_inside_a_node_is_named(address: str, description: str) -> None:
    assert (
        job_failure(f"ConnectionError: {address}: Connection refused").why.rpartition("; ")[2] == description
        or not description
    )


def test_an_error_of_the_network_before_an_unknown_exception_is_the_cause() -> None:
    error = "[1.9] [n1:6274 :0]     ib_mlx5_log.c:179  UCX  ERROR Local protection error on mlx5_0:1/RoCE"
    raised = (TRACEBACK, FRAME, "SomeError: transfer failed")
    assert job_failure(error, *raised).layer == "UCX"
    later = [f"error: {n}" for n in range(20)]  # the message of an exception is no longer
    assert job_failure(*raised, *later, error).quote == "SomeError: transfer failed"


def test_lines_that_state_no_cause_are_given_none() -> None:
    without_cause = [report for report in HELD_OUT if not report["cause"]]
    assert [report["source"] for report in without_cause if verdict_on(*report["lines"]).failure] == []


def test_no_kind_is_certain_where_the_lines_state_no_cause() -> None:
    failures = {report["source"]: verdict_on(*report["lines"]).failure for report in HELD_OUT_3 if not report["cause"]}
    certain_failures = {source: failure for source, failure in failures.items() if failure and failure.why}
    assert [source for source, failure in certain_failures.items() if not failure.is_effect] == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ValueError: Ray does not allocate any GPUs on the driver node.", "Ray waits"),
        ("AlgorithmError: Exit Code: 139", "it ended with a segmentation fault"),
        ('  --> Returned "Not found" (-13) instead of "Success" (0)', "MPI or PMIx did not start"),
        (
            "DDP expects same model across all ranks, but Rank 0 has 8 params while rank 3 has 0",
            "the ranks do not agree",
        ),
    ],
)
def test_a_line_of_a_held_out_log_is_reported(line: str, why: str) -> None:
    """From OpenRLHF 732, sagemaker-python-sdk 134, open-mpi/ompi 8090 and determined 8915."""
    failure = job_failure(line)
    assert failure.why.startswith(why)
    assert not failure.is_warning


def test_reasons_that_a_message_guesses_are_no_facts() -> None:
    line = "Task failed because its node is dead or unavailable. This can happen if it was preempted or OOMKilled."
    assert job_failure(line).why.startswith("a node failed or was lost")


@pytest.mark.parametrize(
    ("line", "quote"),
    [
        ("2026-04-05 18:39:10.8: E external/xla/pjrt/client.cc:962] the plan is gone", "the plan is gone"),
        ("E0405 18:39:10.837983     387 agent.cc:455] the plan is gone", "the plan is gone"),
        ("  what():  the plan is gone", "the plan is gone"),
        ("Value error, the plan is gone", "the plan is gone"),
        ("srun: fatal: the plan is gone", "srun: fatal: the plan is gone"),
    ],
)
def test_an_error_is_quoted_in_whatever_form_it_comes(line: str, quote: str) -> None:
    failure = job_failure("all is well", line)
    assert failure.quote.endswith(quote)
    assert "quoted and not judged" in failure.sentence


def test_of_a_line_that_is_too_long_the_part_is_quoted_that_says_the_kind() -> None:
    failure = job_failure(f"Error: {'x' * 500} nvidia-container-cli: initialization error: driver error: timed out")
    assert failure.quote.endswith("nvidia-container-cli: initialization error: driver error: timed out")


GOOD = {report["source"]: report for report in yaml.safe_load((SAMPLES / "2026-11-26-good-logs.yaml").read_text())}


@pytest.mark.parametrize("source", GOOD)
def test_a_log_of_a_job_that_runs_well_has_no_failure(source: str) -> None:
    result = verdict_on(*GOOD[source]["lines"])
    assert result.failure is None or result.failure.is_warning
    assert result.exit_code != 1


@pytest.mark.parametrize(
    "line",
    [
        "CUDA backend failed to initialize: operation gpuDeviceGetAttribute(&major, device) failed",
        "[0] MPI startup(): tmi fabric is not available and fallback fabric is not enabled",
        "n1.30734PSM2 can't open hfi unit: -1 (err=23)",
        "初始化通信组失败",
    ],
)
def test_a_line_that_no_program_marks_is_quoted_where_nothing_else_is_known(line: str) -> None:
    failure = job_failure("all is well", line)
    assert failure.sentence == f'probably: "{line}"'
    assert verdict_on(line).exit_code == 3
    assert job_failure(line, "ValueError: bad").quote == "ValueError: bad"
    assert verdict_on(line, "step 1 loss 2.0").failure is None


@pytest.mark.parametrize(
    "line",
    [
        "Some weights were not initialized from the checkpoint and are newly initialized: missing",
        "failed: 0, timeouts: 0, retry 3",
        "max_failures: 3 abort_on_failure=True",
        "train.py FAILED",
        "2019-02-25 14:11:16 Failed - Training job failed",
        "Could not find TensorRT, falling back to the default",
    ],
)
def test_words_of_failing_are_no_failure_by_themselves(line: str) -> None:
    assert verdict_on(line).failure is None


def test_a_job_that_goes_on_after_a_failure_has_got_over_it() -> None:
    raised = (TRACEBACK, FRAME, "ValueError: bad sample")
    assert not job_failure(*raised).is_warning
    assert job_failure(*raised, *(f"step {n} loss 2.{n}" for n in range(5))).is_warning
    ended = "srun: error: n1: task 3: Exited with exit code 1"
    assert not job_failure(*raised, *(f"step {n} loss 2.{n}" for n in range(5)), ended).is_warning


@pytest.mark.parametrize(
    ("lines", "quote"),
    [
        (
            ("ERROR: the launch failed because of:", "  the plan is gone"),
            "ERROR: the launch failed because of: the plan is gone",
        ),
        (("Error: it is over", "x", "Caused by: the plan is gone"), "Error: it is over"),
        (
            (
                "Fatal error in PMPI_Init: Other MPI error, error stack:",
                "MPID_Init(597)....: ",
                "get(227).......: the plan is gone",
            ),
            "Fatal error in PMPI_Init: Other MPI error, error stack: … the plan is gone",
        ),
    ],
)
def test_the_lines_after_a_colon_belong_to_the_message(lines: tuple[str, ...], quote: str) -> None:
    assert job_failure(*lines).quote == quote


def test_an_unknown_error_beside_an_effect_is_quoted_with_it() -> None:
    effect = "RuntimeError: Connection reset by peer"
    failure = job_failure("[rank3]: n1 PSM2 can't open hfi unit", effect)
    assert failure.is_effect
    assert failure.nearby_line == "[rank3]: n1 PSM2 can't open hfi unit"
    assert (
        job_failure("[rank3]: n1 PSM2 can't open hfi unit", *(f"line {n}" for n in range(60)), effect).nearby_line == ""
    )


@pytest.mark.parametrize(
    "line",
    [
        "run.sh: line 12: --num_machines: command not found",
        "run.sh: 12: --num_machines: not found",
        "run.sh: 行 12: --num_machines: 未找到命令",
        "run.sh: ligne 12: --num_machines : commande introuvable",
        "run.sh: Zeile 12: --num_machines: Befehl nicht gefunden",
    ],
)
def test_an_option_taken_for_a_command_is_a_broken_line(line: str) -> None:
    assert job_failure(line).why.startswith("the line before --num_machines does not go on in it")


def test_an_empty_address_of_the_first_node_is_reported() -> None:
    failure = job_failure(
        "[INFO] [runner.py:508:main] cmd = pdsh -w a,b launch --node_rank=%n --master_addr= --master_port=29500"
    )
    assert failure.why.startswith("the launcher's master_addr is empty")


def test_an_xid_of_code_is_no_broken_gpu() -> None:
    assert job_failure("NVRM: Xid (PCI:0000:dc:00): 79, pid=1, GPU has fallen off the bus.").why.startswith(
        "a GPU or its NVLink"
    )
    assert job_failure("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 1 caused by previous").is_effect


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("RuntimeError: HIP error: invalid device function", "the code for GPUs was not compiled for this one"),
        ("Memory access fault by GPU node-1 on address 0x7f", "code on a GPU failed"),
        ("init.cc:943 rank 8 and rank 0 both on CUDA device d000", "two ranks use one GPU"),
        ("FATAL:   container creation failed: can't mount tmpfs: write: broken pipe", "the container did not start"),
        ("=   EXIT CODE: 134", "a process ended itself"),
    ],
)
def test_other_vendors_and_runtimes_have_the_same_kinds(line: str, why: str) -> None:
    assert job_failure(line).why.startswith(why)


def test_a_line_of_a_message_that_names_the_reason_is_quoted() -> None:
    """As Ascend's collectives write it; what is only supposed is no reason."""
    message = (
        "RuntimeError: OPS function error: HcclAllreduce, error code is 6",
        "EI0006: Getting socket times out. Reason: no data",
    )
    assert job_failure(TRACEBACK, FRAME, *message).quote == message[1]


def test_a_part_that_goes_over_tcp_instead_of_rdma_is_reported() -> None:
    failure = job_failure("Init RDMA failed! Invalid RDMA endpoint: Fall back to TCP.")
    assert failure.why.startswith("RDMA did not start, and the transfers go over TCP")


@pytest.mark.parametrize(("first", "second"), [("10:00:05", "10:00:01"), ("10:00:01", "10:00:05"), ("", "")])
def test_of_the_logs_of_two_ranks_the_earlier_failure_counts(tmp_path: Path, first: str, second: str) -> None:
    """The second log's lines come many lines after the failure of the first."""
    quiet = [f"line {n}" for n in range(300)]
    for name, time in (("0.log", first), ("1.log", second)):
        (tmp_path / name).write_text(
            "\n".join([*quiet, f"{time} RuntimeError: the plan of {name} is gone".strip(), ""])
        )
    failure = logs.read_run_logs([tmp_path / "0.log", tmp_path / "1.log"], load_wordings()).nccl.failure
    assert failure
    assert ("1.log" in failure.quote) == (second < first)


def test_a_peer_that_went_away_is_named() -> None:
    line = "n1:1:1 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer draw4<59227>"
    assert job_failure(line).why.startswith("draw4 went away")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            (
                TRACEBACK,
                FRAME,
                "ImportError: No module named argparse",
                "Exception in thread Thread-6:",
                TRACEBACK,
                FRAME,
                "CalledProcessError: ssh n1",
            ),
            "the Python module argparse",
        ),
        (
            ("net.cpp:397] Check failed: error >= 0 ERROR connecting to 10.0.0.3: Connection refused [111]",),
            "nothing listens",
        ),
        (
            (
                TRACEBACK,
                FRAME,
                "ray.exceptions.RayActorError: The actor died unexpectedly.",
                "The actor is dead because its node has died.",
            ),
            "a node failed",
        ),
        (("_job_complete: JobId=127441 WTERMSIG 9",), "a process was killed"),
        (
            ("Container rank 0 status failed cmd ['python', 'train.py'] code -6 log default.0.log",),
            "a process ended itself",
        ),
        (("W cuda_driver.cc:326] failed call to cuInit: UNKNOWN ERROR (303)",), "a rank has no GPU"),
    ],
)
def test_of_two_kinds_the_one_counts_that_says_why(lines: tuple[str, ...], why: str) -> None:
    assert job_failure(*lines).why.startswith(why)


PERFORMED = paths.PROJECT / "tests" / "data" / "preflight-logs"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("two-nodes-with-one-GPU-each", ()),
        (
            "NVIDIA-nccl-1091",
            ("the all-reduce of node0 ended the job before its command: rank 0 of 2 failed: SIGSEGV",),
        ),
        ("Blackwellboy-model-serving-minefield-45", ("a GPU has not enough memory", "Process 721")),
    ],
)
def test_what_a_preflight_goes_on_from_is_no_failure(name: str, words: tuple[str, ...]) -> None:
    """Each of these logs has the warning that the node has no RDMA device."""
    result = verdict_on(*(PERFORMED / f"{name}.log").read_text().splitlines())
    assert [word for word in words if word not in result.sentence] == []
    assert "RDMA device" not in result.sentence


def test_a_connection_that_has_no_local_port_blames_no_firewall() -> None:
    """As in NVIDIA/nccl issue 1882."""
    line = "socketStartConnect: connect to 10.77.0.1<60011> failed : Cannot assign requested address"
    result = verdict_on(f"n1:2328:2465 [0] misc/socket.cc:596 NCCL WARN {line}")
    assert "no local port is left" in result.sentence
    assert "firewall" not in result.sentence
