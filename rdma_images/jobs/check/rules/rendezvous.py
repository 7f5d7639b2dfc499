"""Rules on how the nodes of a job meet: their ranks, the address of the first one, its port, and who starts them."""

import re
from collections.abc import Iterator, Mapping

from rdma_images.core.sizes import format_count
from rdma_images.jobs.check.foreign_job import JobPart, Launch, LocatedText, Severity
from rdma_images.jobs.check.rules.rule import CheckContext, RuleFinding, is_placeholder, rule

LOOPBACK = re.compile(r"(?:tcp://)?(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\]?)(?::\d+)?")
# Of each launcher: how many nodes there are, which one this is, where the first one is, and at which port.
NODE_OPTIONS = {
    "torchrun": ("nnodes", "node_rank", "master_addr", "master_port"),
    "accelerate": ("num_machines", "machine_rank", "main_process_ip", "main_process_port"),
    "deepspeed": ("num_nodes", "node_rank", "master_addr", "master_port"),
    "sglang": ("nnodes", "node_rank", "dist_init_addr", ""),
    "vllm": ("nnodes", "node_rank", "master_addr", "master_port"),
}
NODE_ADDRESS = re.compile(
    r"\$\(\s*(?:/bin/)?hostname(?:\s+(?:-\w+|--[\w-]+))*\s*(?:\|[^)]*)?\)(?::\d+)?|\$\{?HOSTNAME\}?(?::\d+)?"
)
ALL_ADDRESSES = re.compile(r"\$\(\s*hostname\s+(?:-I|--all-ip-addresses)\s*\)(?::\d+)?")
NODE_LIST = re.compile(r"\$\{?SLURM_(?:JOB_)?NODELIST\}?(?::\d+)?")
RANDOM_PORT = re.compile(r"\$\{?RANDOM\b|\$\(\(.*RANDOM|\$\(.*(?:shuf|python|socket|\bss\b|netstat)")
MAX_SHARED_GPUS = 4  # of a job that takes a part of a node, whose others may be taken by its like
OPERATORS = ("PyTorchJob", "TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")  # which set PET_ variables
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "MACHINE_RANK")
SLURM_RANK = re.compile(r"\$\{?SLURM_(?:PROCID|LOCALID|NODEID)\}?")


def node_count(part: JobPart, launch: Launch) -> int:
    """Return how many nodes a launch is for; 0 where that is not written."""
    name = NODE_OPTIONS.get(launch.program, ("",))[0]
    if word := launch.options.get(name):
        counts = re.fullmatch(r"(?:\d{1,6}:)?(\d{1,6})", word.text)
        return int(counts[1]) if counts else part.job_nodes or 0
    return 0


def is_on_each_node(part: JobPart, launch: Launch) -> bool:
    """Return whether each node's own shell reads the command, with its own variables."""
    return launch.on_nodes or (part.kind == "kubernetes" and (part.job_nodes or 0) > 1)


def srun_nodes(part: JobPart, launch: Launch) -> int | None:
    """Return the nodes on which srun starts a command; None where it does not say."""
    if launch.srun is None or "nodelist" in launch.srun or "relative" in launch.srun:
        return None
    word = launch.srun.get("nodes")
    return word.number if word else part.job_nodes


@rule(
    "rendezvous.torchrun",
    "error",
    "pytorch/pytorch, torch/distributed/run.py: defaults of --node-rank, --master-addr and --rdzv-endpoint",
)
def isolated_torchruns(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report torchrun for several nodes, each of which starts by itself or as the first."""
    is_operators = part.kind == "kubernetes" and part.title.startswith(OPERATORS)
    if is_operators or any(name.startswith("PET_") for name in part.environment):
        return
    for launch in part.start.launches:
        options, nodes = launch.options, node_count(part, launch)
        if launch.program != "torchrun" or launch.may_have_more_options or not launch.is_certain:
            continue
        if "nnodes" not in options:
            yield from _isolated_by_default(part, launch)
        if nodes < 2:
            continue
        word = options["nnodes"]
        backend = options.get("rdzv_backend")
        if "standalone" in options:
            problem = f"--standalone is for one node: each of the {nodes} nodes trains by itself"
            yield word, problem, "replace it by --rdzv-backend=c10d --rdzv-endpoint=FIRST_NODE:29500"
        elif backend and backend.text not in ("static", "") and "$" not in backend.text:
            if "rdzv_endpoint" not in options:
                problem = f"--rdzv-backend={backend.text} without --rdzv-endpoint: each node meets itself at localhost"
                yield backend, problem, "add --rdzv-endpoint=FIRST_NODE:29500; --master-addr is not read here"
        elif not backend and (missing := _missing_options(options)):
            default = (
                "each node is rank 0" if "node_rank" not in options else "each node looks for the first at 127.0.0.1"
            )
            problem = (
                f"torchrun for {nodes} nodes without {missing}, and it reads no MASTER_ADDR or NODE_RANK: {default}"
            )
            yield word, problem, "add it, or --rdzv-backend=c10d --rdzv-endpoint=FIRST_NODE:29500"


@rule(
    "rendezvous.nodes",
    "error",
    "sgl-project/sglang, python/sglang/srt/server_args.py; vllm-project/vllm, vllm/engine/arg_utils.py; "
    "ray-project/ray, python/ray/scripts/scripts.py, start",
)
def isolated_servers(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report servers of several nodes that do not know their rank, or the first node."""
    for launch in part.start.launches:
        options, nodes = launch.options, node_count(part, launch)
        word = LocatedText(launch.program, launch.line)
        if launch.program == "ray" and not launch.may_have_more_options:
            if "head" not in options and "address" not in options:
                yield word, "ray start has neither --head nor --address: it refuses to start", "add --address=HEAD:6379"
            elif "head" in options and (srun_nodes(part, launch) or 0) > 1:
                problem = "srun starts a head of Ray on each node: there are as many clusters"
                yield word, problem, "start the head with srun -N1 -n1 -w FIRST_NODE, and the others with --address"
            elif (address := options.get("node_ip_address")) and re.fullmatch(r"[\w.-]+:\d+", address.text):
                problem = f"--node-ip-address={address.text} has a port, and is no address"
                yield address, problem, "write the node's address alone"
            continue
        if launch.program not in ("sglang", "vllm", "accelerate") or nodes < 2 or launch.may_have_more_options:
            continue
        names = NODE_OPTIONS[launch.program]
        is_dynamic = launch.program == "accelerate" and "rdzv_backend" in options  # which chooses ranks by itself
        missing = [name for name in names[1:3] if name not in options and not (is_dynamic and name == names[1])]
        if missing and "config_file" not in options:
            flags = " and ".join(
                "--" + name.replace("_", "_" if launch.program == "accelerate" else "-") for name in missing
            )
            default = (
                "each node is the first" if names[1] in missing else "each node looks for the first at its own address"
            )
            severity: Severity = "warning" if launch.program == "accelerate" else "error"  # a file may have them
            yield word, f"{launch.program} for {nodes} nodes without {flags}: {default}", "add it", severity


def _isolated_by_default(part: JobPart, launch: Launch) -> Iterator[RuleFinding]:
    """Yield a finding for a torchrun that several nodes each start, and that is for one node."""
    node_count_started = part.job_nodes if part.kind == "skypilot" else srun_nodes(part, launch)
    if (node_count_started or 0) > 1:
        flag = "with --standalone" if "standalone" in launch.options else "without --nnodes"
        problem = f"{node_count_started} nodes each start torchrun {flag}: each trains by itself"
        fix = f"write --nnodes={node_count_started} --rdzv-backend=c10d --rdzv-endpoint=FIRST_NODE:29500"
        yield LocatedText("torchrun", launch.line), problem, fix, "warning"


def _missing_options(options: Mapping[str, LocatedText]) -> str:
    """Return the options that a torchrun without `--rdzv-backend` lacks to meet other nodes; "" where none."""
    missing = [] if "node_rank" in options else ["--node-rank"]
    if "master_addr" not in options and "rdzv_endpoint" not in options:
        missing.append("--master-addr")
    return " and ".join(missing)


@rule("rendezvous.node-rank", "error", "pytorch/pytorch, torch/distributed/run.py; huggingface/accelerate, issue 2362")
def wrong_node_rank(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a node's rank that every node has, or that is beyond the last."""
    for launch in part.start.launches:
        names, nodes = NODE_OPTIONS.get(launch.program), node_count(part, launch)
        rank = launch.options.get(names[1]) if names else None
        backend = launch.options.get("rdzv_backend")
        if launch.program == "torchrun" and backend and backend.text != "static":
            continue  # which chooses ranks by itself
        if not rank or rank.number is None or not nodes:
            continue
        is_started_on_all = (srun_nodes(part, launch) or 0) > 1 or is_on_each_node(part, launch)
        if rank.number >= nodes:
            problem = f"rank {rank.text} of {format_count(nodes, 'node')}: their ranks go from 0 to {nodes - 1}"
            yield rank, problem, "count the nodes from 0"
        elif nodes > 1 and is_started_on_all and part.kind in ("slurm", "kubernetes"):
            problem = f"each of the {nodes} nodes is started with rank {rank.text}"
            fix = (
                "write \\$SLURM_NODEID, in quotes for the shell of each node"
                if part.kind == "slurm"
                else "give each pod its own rank"
            )
            yield rank, problem, fix


@rule("rendezvous.first-node", "warning", "pytorch/pytorch, torch/distributed/run.py: the first node is one for all")
def different_first_nodes(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report commands for the nodes of one job that name different first nodes."""
    first_by_program: dict[tuple[str, int], tuple[Launch, LocatedText, LocatedText]] = {}
    for launch in part.start.launches:
        names, nodes = NODE_OPTIONS.get(launch.program), node_count(part, launch)
        rank, address = (launch.options.get(name) for name in names[1:3]) if names else (None, None)
        if nodes < 2 or not (rank and address) or rank.number is None or "$" in address.text:
            continue
        first, first_rank, first_address = first_by_program.setdefault((launch.program, nodes), (launch, rank, address))
        if first_rank.text != rank.text and first_address.text != address.text:
            problem = f"node {rank.text} meets at {address.text}, and node {first_rank.text} of line {first.line} at"
            yield address, f"{problem} {first_address.text}", "write the same first node on all nodes"


@rule(
    "rendezvous.gloo",
    "warning",
    "pytorch/pytorch, c10d/ProcessGroupGloo.cpp: without GLOO_SOCKET_IFNAME Gloo takes the address of the host's name; "
    "sglang issue 3226",
)
def interface_of_gloo(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report servers on several nodes whose interface is set for NCCL alone."""
    word = part.environment.get("NCCL_SOCKET_IFNAME")
    servers = [launch for launch in part.start.launches if launch.program in ("sglang", "vllm")]
    if not word or word.text.startswith("^") or "GLOO_SOCKET_IFNAME" in part.environment:
        return
    if any(node_count(part, launch) > 1 for launch in servers):
        problem = f"NCCL_SOCKET_IFNAME={word.text}, and Gloo is not told: it announces the address of the host's name"
        yield word, problem, "set GLOO_SOCKET_IFNAME as well, and SGLANG_HOST_IP or VLLM_HOST_IP to the node's address"


@rule("rendezvous.port", "error", "pytorch/pytorch, torch/distributed/rendezvous.py: a port is less than 2^16")
def wrong_port(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a port that does not exist, or that each node draws for itself."""
    words: list[tuple[LocatedText, Launch | None]] = []
    if port := part.environment.get("MASTER_PORT"):
        words.append((port, None))
    for launch in part.start.launches:
        names = NODE_OPTIONS.get(launch.program, ("", "", "", ""))
        ports = [launch.options[name] for name in (names[3],) if name in launch.options]
        for name in ("rdzv_endpoint", "dist_init_addr"):
            if (word := launch.options.get(name)) and ":" in word.text:
                ports.append(LocatedText(word.text.rpartition(":")[2], word.line))
        words += [(word, launch) for word in ports]
    for word, starter in words:
        if (word.number or 0) >= 1 << 16:
            yield word, f"port {word.text}: ports go up to 65535", "choose one from 1024 to 65535, as 29500"
        elif RANDOM_PORT.search(word.text) and _is_read_by_each(part, starter):
            yield word, f"each node draws its own port by {word.text[:60]}", "choose one port for all nodes"


@rule(
    "rendezvous.shared-port",
    "warning",
    "pytorch/pytorch, torch/distributed/run.py: --master-port is 29500 where it is not written; --standalone takes a "
    "free one; huggingface/accelerate, issue 3175",
)
def port_of_shared_node(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a fixed port of jobs that share a node, where another may use it."""
    gpus = part.gpus.number if part.gpus else None
    is_array = "array" in part.options
    if part.title != "sbatch script" or "exclusive" in part.options or (part.job_nodes or 1) > 1 or not gpus:
        return
    if gpus > (MAX_SHARED_GPUS if is_array else 2):
        return
    for launch in part.start.launches:
        options = launch.options
        endpoint = options.get("rdzv_endpoint")
        port = options.get("master_port") or part.environment.get("MASTER_PORT")
        if launch.program == "accelerate":
            port = options.get("main_process_port")
        if endpoint:
            port = LocatedText(endpoint.text.rpartition(":")[2], endpoint.line)
        is_elsewhere = endpoint is not None and not LOOPBACK.fullmatch(endpoint.text)
        has_several_ranks = launch.program in ("torchrun", "accelerate") and "config_file" not in options and gpus > 1
        if not (has_several_ranks or launch.program == "torchrun") or "standalone" in options or is_elsewhere:
            continue
        if node_count(part, launch) > 1:
            continue
        if not endpoint and "rdzv_backend" in options:
            continue
        if launch.may_have_more_options or (port and (port.number is None or not port.number)):
            continue
        word = port or LocatedText(launch.program, launch.line)
        others = "another task of the array" if is_array else "another such job"
        fix = "write torchrun --standalone"
        if launch.program == "accelerate":
            fix = "write --main_process_port with a number made of the job's, as $((20000 + SLURM_JOB_ID % 10000))"
        problem = f"port {port.text if port else '29500'} is in use where {others} runs on the same node, of which "
        yield word, f"{problem}this takes {format_count(gpus, 'GPU')}", fix


def _is_read_by_each(part: JobPart, launch: Launch | None) -> bool:
    """Return whether several nodes each read the value of a launch, or of a pod, themselves."""
    is_each = is_on_each_node(part, launch) if launch else part.kind == "kubernetes"
    return is_each and _nodes(part, launch) > 1


def _nodes(part: JobPart, launch: Launch | None) -> int:
    return max(part.job_nodes or 0, node_count(part, launch) if launch else 0)


@rule(
    "rendezvous.address-form",
    "error",
    "pytorch/pytorch, torch/distributed/elastic/rendezvous/utils.py, parse_rendezvous_endpoint",
)
def wrong_address(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report an address of the first node that is none, or that each node reads as its own."""
    for word, launch in _addresses(part):
        text, nodes = word.text.removeprefix("tcp://"), _nodes(part, launch)
        is_endpoint = launch is not None and word in (
            launch.options.get("rdzv_endpoint"),
            launch.options.get("dist_init_addr"),
        )
        if re.match(r"https?://", text):
            yield word, f"{text} is a URL, and no host name", "write the host's name or address alone"
        elif not is_endpoint and re.fullmatch(r"[\w.-]+:\d+", text):
            problem = f"{text} has a port: the address and the port are two settings"
            yield word, problem, "write the port as the launcher's port"
        elif nodes > 1 and NODE_LIST.fullmatch(text):
            problem = f"{text} is a list of nodes, as node[01-02], and no name"
            yield word, problem, 'write $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
        elif ALL_ADDRESSES.fullmatch(text):
            problem = "hostname -I prints all addresses of the node with a blank behind each"
            yield word, problem, "take one: $(hostname -I | awk '{print $1}')", "warning"
        elif NODE_ADDRESS.fullmatch(text) and _is_read_by_each(part, launch):
            problem = f"{text} is each node's own name: no node meets the others"
            yield word, problem, "write the first node's name on all nodes"
        elif (
            nodes > 1
            and launch
            and launch.program != "torchrun"
            and LOOPBACK.fullmatch(word.text)
            and not (part.kind == "docker" and part.network == "host")  # whose containers do meet there
        ):
            problem = f"{text} is each node itself: no node meets the others"
            yield word, problem, "write the first node's name or address"


@rule(
    "rendezvous.pod-name",
    "warning",
    "kubernetes.io, DNS for Services and Pods: HOSTNAME.SUBDOMAIN; kubernetes-sigs/jobset, docs, Concepts",
)
def unknown_pod_names(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report an address that begins as the first pod's name, and is not its name."""
    pod_names = part.traits["pod-names"].text.split() if "pod-names" in part.traits else []
    for word, _launch in _addresses(part) if pod_names else ():
        host, *labels = word.text.removeprefix("tcp://").partition(":")[0].split(".")
        subdomain = labels[0] if labels else ""
        host_names = [name for name in pod_names if name.partition(".")[0] == host]
        if host_names and host_names[0].partition(".")[2] != subdomain:
            problem = f"{word.text} is no name of the first pod: other pods find it by {host_names[0]}"
            yield word, problem, f"write {host_names[0]}"


def _addresses(part: JobPart) -> Iterator[tuple[LocatedText, Launch | None]]:
    """Yield the first node's addresses and their launches; None for the variable's."""
    if word := part.environment.get("MASTER_ADDR"):
        yield word, None
    for launch in part.start.launches:
        for name in {NODE_OPTIONS.get(launch.program, ("", "", "", ""))[2], "rdzv_endpoint"}:
            if word := launch.options.get(name):
                yield word, launch


@rule(
    "rendezvous.services",
    "error",
    "pytorch/pytorch, torch/distributed/run.py: the nodes of a job differ in their rank alone",
)
def conflicting_nodes(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report containers that are nodes of one job, with the same rank or other counts."""
    for launch in part.start.launches:
        names, nodes = NODE_OPTIONS.get(launch.program), node_count(part, launch)
        rank = launch.options.get(names[1]) if names else None
        if not names or not rank or rank.number is None or nodes < 2:
            continue
        for other in context.siblings:
            is_earlier = (other.file, other.line) < (part.file, part.line)
            if not is_earlier or part.title == "docker run":  # a script's commands are not told apart by container
                continue
            for first in other.start.launches:
                if first.program == launch.program and (first_rank := first.options.get(names[1])):
                    yield from _conflict(part, launch, other, first, first_rank)


def _conflict(
    part: JobPart, launch: Launch, other: JobPart, first: Launch, first_rank: LocatedText
) -> Iterator[RuleFinding]:
    """Yield what two nodes of a job, of which `first` stands earlier, cannot have together."""
    nodes_option, rank_option, address_option, _ = NODE_OPTIONS[launch.program]
    rank, address = launch.options[rank_option], launch.options.get(address_option)
    first_address = first.options.get(address_option)
    is_same_job = address and first_address and address.text == first_address.text
    is_same_file = part.file == other.file
    if not is_same_file and not is_same_job:
        return
    severity: Severity = "error" if is_same_file else "warning"
    location = f"line {other.line}" if is_same_file else other.file
    if first_rank.text == rank.text:
        problem = f"rank {rank.text} is that of {other.title} in {location}, too"
        yield rank, problem, "give each node its own rank", severity
    elif (count := node_count(other, first)) and count != node_count(part, launch):
        problem = f"{launch.options[nodes_option].text} nodes, and {other.title} in {location} is for {count}"
        yield launch.options[nodes_option], problem, "write the same on all nodes", severity


@rule("rendezvous.host-ip", "error", "vllm-project/vllm, vllm/envs.py, VLLM_HOST_IP: the address of this node")
def same_host_address(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a VLLM_HOST_IP that two nodes have, or that no other node reaches."""
    word = part.environment.get("VLLM_HOST_IP")
    if not word or is_placeholder(word.text):
        return
    for other in context.siblings:
        other_word = other.environment.get("VLLM_HOST_IP")
        if other_word and other.line < part.line and other_word.text == word.text and part.kind == "docker":
            problem = f"VLLM_HOST_IP={word.text} is that of {other.title} in line {other.line}, too"
            yield word, problem, "write each node's own address"
    if word.text in ("127.0.0.1", "localhost", "0.0.0.0"):
        yield word, f"VLLM_HOST_IP={word.text} is no address that other nodes reach", "write the node's own address"


@rule("restarts.store", "warning", "pytorch/pytorch issue 135712, and torch 2.11 measured: 3 of 12 restarts connected")
def store_of_restarts(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report restarts of torchrun that keep the store of the attempt before."""
    variable = part.environment.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE")
    restarts = part.start.restarts
    if restarts and re.fullmatch("[1-9][0-9]*", restarts.text) and not (variable and variable.text == "1"):
        problem = "torchrun of torch 2.6 to 2.15 keeps its store over a restart: a rank takes an old address and hangs"
        yield restarts, problem, "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"


@rule("rendezvous.address", "error", "pytorch/pytorch issue 76069; SchedMD, srun(1), SLURM_LAUNCH_NODE_IPADDR")
def wrong_rendezvous(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a first node at a loopback address, or at the host where srun was called."""
    has_other_nodes = (part.job_nodes or (part.start.nodes and part.start.nodes.number) or 0) > 1
    fix = 'write the first node\'s name: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    if part.kind != "slurm":
        fix = "write the first node's name"
    for word in filter(None, (part.start.first_node, part.environment.get("MASTER_ADDR"))):
        if has_other_nodes and LOOPBACK.fullmatch(word.text):
            yield word, f"{word.text} is each node itself: no node meets the others", fix
        elif "SLURM_LAUNCH_NODE_IPADDR" in word.text and "srun" not in part.traits:
            problem = (
                "SLURM_LAUNCH_NODE_IPADDR is the node where srun is called, as a login node, and not the first one"
            )
            yield word, problem, fix, "warning"


@rule("rendezvous.rank", "warning", "huggingface/accelerate issue 1645; SchedMD, sbatch(1), SLURM_PROCID")
def rank_before_srun(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a node's rank that the sbatch script's own shell puts in place for all nodes."""
    backends = (launch.options.get("rdzv_backend") for launch in part.start.launches)
    if any(backend and backend.text != "static" for backend in backends):
        return  # which chooses ranks by itself
    word = part.traits.get("early-rank") or _exported_rank(part)
    if (part.job_nodes or 0) > 1 and word:
        problem = f"the script itself puts its own {word.text} in place, before srun starts: each node gets rank 0"
        yield word, problem, "write srun bash -c '…' in single quotes, or a backslash before the dollar sign"


def _exported_rank(part: JobPart) -> LocatedText | None:
    """Return a rank that an sbatch script exports by its own variables, before srun."""
    started = [launch for launch in part.start.launches if launch.srun is not None and not launch.on_nodes]
    if part.title != "sbatch script" or not started:
        return None
    exported = started[0].exported
    words = (exported[name] for name in RANK_VARIABLES if name in exported)
    return next((word for word in words if SLURM_RANK.fullmatch(word.text)), None)


@rule(
    "launcher.nodes",
    "warning",
    "deepspeedai/DeepSpeed, deepspeed/launcher/runner.py, fetch_hostfile; huggingface/accelerate, issue 2601; "
    "Lightning-AI/pytorch-lightning, issue 8707",
)
def launcher_without_nodes(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a launcher that names no other node, or a program that no other node starts."""
    if part.start.lone_launcher and (part.job_nodes or 0) > 1:
        word = part.start.lone_launcher
        fix = "--num_machines, --num_processes, --machine_rank and --main_process_ip, or --config_file"
        if word.text == "deepspeed":
            fix = "--hostfile with --no_ssh, --node_rank and --master_addr on each node, or --hostfile alone over ssh"
        problem = f"{word.text} is told of no other node: it trains on one node, or on each by itself"
        if word.text in ("python", "torchrun"):
            problem = f"{word.text} runs on the first node alone: nothing in the script starts it on the others"
            yield word, problem, "start it with srun, once for each GPU, or torchrun with srun, once on each node"
            return
        yield word, problem, f"give it {fix}"
