"""A launcher's own options on a command line, and where the program that it starts begins."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rdma_images.jobs.check.foreign_job import LocatedText
from rdma_images.jobs.check.parsers.commands import OPTION, ShellWord

# Options that take no value, or take it only behind an equals sign; any other one takes the next word. From the sources
# and manuals of torch 2.15, DeepSpeed, accelerate 1.15, horovod, Slurm 22.05, Docker, Open MPI 4 and 5, and MPICH 4.
FLAGS = {
    "torchrun": "h help m module no_python run_path standalone use_env virtual_local_rank",
    "deepspeed": "bind_cores_to_rank elastic_training force_multi h help module no_local_rank no_python no_ssh "
    "no_ssh_check q quiet save_pid",
    "accelerate": "cpu debug downcast_bf16 dynamo_use_dynamic dynamo_use_fullgraph dynamo_use_regional_compilation "
    "enable_cpu_affinity fp8_use_autocast_during_eval h help ipex m module multi_gpu no_python no_tpu_cluster q quiet "
    "same_network tpu tpu_cluster tpu_use_sudo use_deepspeed use_fsdp use_megatron_lm use_parallelism_config use_xpu",
    "horovodrun": "autotune cb check_build disable_cache gloo h help jsrun log_with_timestamp log_without_timestamp "
    "mpi no_autotune no_stall_check prefix_timestamp stall_check tcp timeline_mark_cycles v verbose version",
    "mpirun": "V allow_run_as_root bind_to_core bind_to_socket bycore bynode byslot d debug debug_daemons "
    "disable_auto_cleanup disable_recovery display_allocation display_map do_not_launch do_not_resolve enable_recovery "
    "enable_x envall envnone genvall genvnone get_stack_traces h hetero_nodes info l leave_session_attached localhost "
    "merge_stderr_to_stdout nolocal nooversubscribe noprefix novm oversubscribe parsable pernode preload_binary "
    "prepend_rank print_rank_map q quiet report_bindings s show_progress skip_launch_node tag_output timestamp_output "
    "tv use_hwthread_cpus v verbose version xml",
    "srun": "E H I K O Q X Z bcast compress container_mount_home container_readonly container_remap_root "
    "container_writable contiguous disable_status exact exclusive h help hold immediate k kill_on_bad_exit l label "
    "multi_prog nice no_allocate no_container_entrypoint no_container_mount_home no_container_remap_root no_kill "
    "overcommit overlap oversubscribe preserve_env propagate pty quiet quit_on_interrupt reboot resv_ports s share "
    "spread_job u unbuffered use_min_nodes v verbose wait_for_children whole x11",
    "docker run": "P d detach h help i init interactive no_healthcheck oom_kill_disable privileged publish_all q quiet "
    "read_only rm sig_proxy t tty",
}
# Open MPI's and MPICH's, with two values.
PAIRS = ("env", "genv", "gmca", "gpmixmca", "gprtemca", "mca", "omca", "pmixmca", "prtemca")
SLURM_NAMES = {
    **{"A": "account", "C": "constraint", "D": "chdir", "G": "gpus", "J": "job_name", "M": "clusters", "N": "nodes"},
    **{"a": "array", "c": "cpus_per_task", "d": "dependency", "e": "error", "i": "input", "m": "distribution"},
    **{"n": "ntasks", "o": "output", "p": "partition", "q": "qos", "r": "relative", "t": "time", "w": "nodelist"},
    **{"x": "exclude", "tasks_per_node": "ntasks_per_node"},
}
# Letters and other names of options.
NAMES = {
    "deepspeed": {"num_accelerators": "num_gpus", "H": "hostfile", "e": "exclude", "i": "include"},
    "mpirun": {"c": "np", "n": "np"},
    "sbatch": SLURM_NAMES,
    "srun": SLURM_NAMES,
    "docker run": {"net": "network", "e": "env", "v": "volume", "m": "memory", "u": "user", "w": "workdir"},
}
LONG_WITH_ONE_DASH = ("mpirun", "horovodrun")


@dataclass
class ParsedOptions:
    """Options by name, with _ for -, and the position of the first word behind them."""

    occurrences: list[tuple[str, LocatedText]] = field(default_factory=list)
    position: int = 0

    @property
    def options(self) -> dict[str, LocatedText]:
        """Return the last of each."""
        return dict(self.occurrences)


def parse(program: str, words: Sequence[ShellWord]) -> ParsedOptions:
    """Read the options that a command line begins with.

    Args:
        program: the launcher, as in FLAGS; of any other one each option takes the next word.
        words: those behind the program. A script is no option's value.
    """
    flags = FLAGS.get(program, "").split()
    parsed = ParsedOptions()
    while parsed.position < len(words) and OPTION.match(words[parsed.position].text):
        word = words[parsed.position]
        parsed.position += 1
        option, equals, value = _split(program, word.text, flags)
        if program == "mpirun" and option in PAIRS:
            parsed.position += 2
        elif not equals and option not in flags and parsed.position < len(words):
            following = words[parsed.position].text
            if not OPTION.match(following) and not following.endswith((".py", ".sh")):
                value = following
                parsed.position += 1
        parsed.occurrences.append((option, LocatedText(value, word.line)))
    if parsed.position < len(words) and words[parsed.position].text == "--":
        parsed.position += 1
    return parsed


def _split(program: str, text: str, flags: Sequence[str]) -> tuple[str, str, str]:
    """Return the name of an option, "=" where its value is in the same word, and that value.

    Letters may be joined, as in -it, and a value may follow its letter, as in -N2.
    """
    names = NAMES.get(program, {})
    name, equals, value = text.partition("=")
    bare = name.lstrip("-").replace("-", "_")
    if not text.startswith("--") and program not in LONG_WITH_ONE_DASH:
        bare = text[1:]
        while len(bare) > 1 and bare[0] in flags:
            bare = bare[1:]
        bare, value = bare[0], bare[1:].removeprefix("=")
        equals = "=" if value else ""
    return names.get(bare, bare), equals, value
