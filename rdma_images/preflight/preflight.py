"""Check this node and the job's other nodes, in seconds, and then run the job's command with its NCCL watched."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator

from rdma_images.nccl_logs.log_patterns import LogPatterns
from rdma_images.preflight import all_reduce, command, devices, gpus, interfaces, meeting, system
from rdma_images.preflight.job_nodes import JobNode, LocalRanks, ask_checking_rank, find_node
from rdma_images.preflight.meeting import Meeting, Message
from rdma_images.preflight.system import Finding, first_line, node_name, print_findings, print_line

CHECK_FAILED, WRONG_NETWORK, CANNOT_RUN, NOT_FOUND = 96, 97, 126, 127  # exit codes
PORT = 29499  # where the nodes meet at the first one, beside torchrun's
LOG_PATTERNS_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nccl-logs.json")
VERSION_FILE = os.path.join(os.path.dirname(LOG_PATTERNS_FILE), "version")
NO_FOLDER = "-"  # what the other ranks are told where NCCL's logs have none


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """Return the options, and the words of the command as `command`."""
    parser = argparse.ArgumentParser(
        prog=system.PROGRAM, usage="%(prog)s [OPTIONS] [--] COMMAND...", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--require", choices=("efa", "erdma", "any"), default="", help="what must carry the job")
    parser.add_argument("--adapters", type=int, default=0, help="adapters of the node that the job asked for")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of each node; 0: those that are visible")
    parser.add_argument("--mtu", type=int, default=0, help="of the adapters' interfaces on each node; 0: any")
    parser.add_argument("--nodes", type=int, help="number of nodes, where the launcher does not say it")
    parser.add_argument("--node", type=int, default=0, help="this node's number, likewise; 0 is the first")
    parser.add_argument("--first", default="", help="name or address of node 0, likewise")
    parser.add_argument("--log", default="", metavar="FOLDER", help="where NCCL's log of each process goes")
    parser.add_argument("--print-log", action="store_true", help="print NCCL's lines, too, while they are written")
    parser.add_argument("--no-all-reduce", action="store_true", help="leave out the all-reduce over all GPUs")
    parser.add_argument("--root", default="", help=argparse.SUPPRESS)  # of the kernel's files, as tests write them
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run; nothing to check only")
    options = parser.parse_args(words)
    if options.command[:1] == ["--"]:  # torchrun takes it away
        del options.command[0]
    return options


class Preflight:
    """The preflight of one node: its checks, and the job's command."""

    def __init__(self, options: argparse.Namespace, node: JobNode) -> None:
        """Take the command line and this node's place in the job."""
        self.options, self.node, self.root = options, node, options.root
        self.nccl = system.find_nccl()
        self.devices = devices.read_devices(self.root)
        self.fabric_devices = devices.devices_of_fabric(self.devices, options.require)
        self.usable = [device for device in self.fabric_devices if device.is_usable]
        self.gpus = options.gpus or gpus.visible_gpus(len(gpus.gpu_files(self.root)))
        self.interfaces, self.ifname = interfaces.read_interfaces(), os.environ.get("NCCL_SOCKET_IFNAME", "")
        family = os.environ.get("NCCL_SOCKET_FAMILY", "")
        self.used_interfaces = interfaces.socket_interfaces(self.interfaces, self.ifname, self.nccl, family)
        with open(LOG_PATTERNS_FILE, encoding="utf-8") as file:
            self.patterns = LogPatterns(json.load(file))

    def local_findings(self) -> Iterator[Finding]:
        """Yield the findings about this node alone."""
        options, root, nodes = self.options, self.root, self.node.nodes
        yield from interfaces.check_interfaces(self.interfaces, self.used_interfaces, self.ifname, nodes)
        if not (options.require or self.devices or gpus.gpu_files(root)):
            yield "warning", "hardware", "neither a GPU nor an RDMA device is here: only the interfaces were checked"
            return
        yield from devices.check_devices(self.devices, options.require, options.adapters, nodes)
        yield from devices.check_ports(self.usable)
        yield from devices.check_gids(self.fabric_devices, os.environ.get("NCCL_IB_GID_INDEX", ""))
        yield from devices.check_mtu(self.fabric_devices, options.mtu)
        yield from devices.check_limits(root, self.fabric_devices)
        yield from gpus.check_gpus(root, options.gpus)
        yield from gpus.check_gpudirect(root, self.usable)

    def checks_failed(self) -> bool:
        """Run the checks of this node, of the nodes together, and the all-reduce; return True if one failed."""
        failed = print_findings(self.local_findings())
        if self.node.nodes < 2:
            return failed or self.all_reduce_failed(None)
        if not self.node.first:
            sentence = f"no variable says which of {self.node.nodes} nodes is the first, so they do not meet"
            print_line("warning", "nodes", f"{sentence}: set MASTER_ADDR")
            return failed
        address = self.used_interfaces[0].address if self.used_interfaces else "0.0.0.0"
        try:
            with Meeting(self.node, address, self.options.port) as nodes_meeting:
                failed |= print_findings(self.meeting_findings(nodes_meeting))
                return self.any_node_failed(nodes_meeting, failed) or self.all_reduce_failed(nodes_meeting)
        except OSError as error:
            print_line("error", "nodes", str(error))
            return True

    def meeting_findings(self, nodes_meeting: Meeting) -> Iterator[Finding]:
        """Exchange facts with the other nodes; yield each difference, and an error if the neighbour is unreachable."""
        facts = meeting.shared_facts(self.root, self.usable, str(self.nccl or ""))
        message = {"name": node_name(), "address": nodes_meeting.own_address, "facts": facts, "gpus": self.gpus}

        def answer(nodes: list[Message]) -> list[Message]:
            shared = {"differences": meeting.describe_differences(nodes), "gpus": min(node["gpus"] for node in nodes)}
            return [{"neighbour": {**node, "facts": {}}, **shared} for node in nodes[1:] + nodes[:1]]

        reply = nodes_meeting.exchange(message, answer)
        self.gpus = reply["gpus"]  # the all-reduce takes as many of each node
        for sentence in () if self.node.number else reply["differences"]:
            yield "warning", "differences", sentence
        yield from meeting.check_neighbour(reply["neighbour"]["name"], reply["neighbour"]["address"])

    def any_node_failed(self, nodes_meeting: Meeting, failed: bool) -> bool:
        """Tell the nodes whether this one failed, and print which others did; return True if one failed."""
        names = nodes_meeting.nodes_where(failed)
        if names and not failed:
            print_line("error", "nodes", f"the command is not started: see the errors of {', '.join(names[:8])}")
        return bool(names)

    def can_all_reduce(self) -> bool:
        """Return whether this node can run the all-reduce; print why not."""
        obstacle = "" if self.nccl else "no libnccl.so.2 is found"
        try:
            tempfile.gettempdir()
        except OSError as error:
            obstacle = f"no temporary folder can be written: {error}"
        if obstacle:
            print_line("warning", "all-reduce", f"not run: {obstacle}")
        return not obstacle

    def all_reduce_failed(self, nodes_meeting: Meeting | None) -> bool:
        """Run the all-reduce if there are GPUs and every node can, and print its findings; return True if it failed."""
        if self.gpus * self.node.nodes < 2:
            return False
        can_run = not self.options.no_all_reduce and self.can_all_reduce()
        unable = nodes_meeting.nodes_where(not can_run) if nodes_meeting else []
        if can_run and unable:
            print_line("note", "all-reduce", f"not run: see the lines of {', '.join(unable[:8])}")
        if unable or not (can_run and self.nccl):
            return False
        place, folder = (self.node.nodes, self.node.number), tempfile.TemporaryDirectory(prefix="all-reduce-")
        with folder as path, all_reduce.Ranks(place, self.gpus, self.nccl.path, path, os.environ) as ranks:
            unique_id = "" if self.node.number else ranks.make_id()
            if nodes_meeting:
                unique_id = nodes_meeting.exchange({"id": unique_id}, lambda nodes: nodes[:1] * len(nodes))["id"]
            answers = ranks.run(unique_id, all_reduce.LIMIT_SECONDS + self.node.nodes)
            failed = print_findings(
                all_reduce.check_answers(ranks, answers, self.node, self.usable, self.options.require, self.patterns)
            )
            # The ranks stay until all have an answer: an earlier end breaks the others' connections.
            return self.any_node_failed(nodes_meeting, failed) if nodes_meeting else failed

    def run(self, answer_ranks: Callable[[str], None]) -> int:
        """Check, run the command, print the last line, return the exit code; `answer_ranks` is LocalRanks.answer."""
        if self.checks_failed():
            answer_ranks("")
            return self.print_result("none; a check failed", "", CHECK_FAILED)
        if not self.options.command:
            answer_ranks(NO_FOLDER)
            return self.print_result("none; no command was given", "", 0)
        folder = command.find_folder(self.options.log, os.environ)
        if not folder:
            print_line("warning", "log", "no folder for NCCL's log can be written: the job's network is not judged")
        logs = command.NodeLogs(folder, self.patterns, self.options.print_log)

        def look() -> bool:
            answer_ranks(folder or NO_FOLDER)  # those that came after the command
            logs.read()
            return logs.uses_other_network(self.options.require)

        answer_ranks(folder or NO_FOLDER)
        code = start_command(self.options.command, folder, look)
        while logs.read():
            pass
        verdict = logs.verdict
        if code == WRONG_NETWORK and logs.uses_other_network(self.options.require):
            sentence = f"the command was ended, since {self.options.require} is required: {verdict.sentence}"
            print_line("error", "network", sentence)
        return self.print_result(f"{verdict.network}; {verdict.sentence}", verdict.nccl or "", code)

    def print_result(self, network: str, nccl: str, code: int) -> int:
        """Print the last line: the network, the adapters that can be used, and the versions. Return the exit code."""
        kinds = "/".join(sorted({device.driver for device in self.fabric_devices})) or "RDMA"
        adapters = f"{len(self.usable)} of {max(self.options.adapters, len(self.fabric_devices))} {kinds}"
        libfabric = re.search(r"^libfabric: (\S+)", system.run_program("fi_info", "--version"), re.MULTILINE)
        versions = {
            "NCCL": nccl or str(self.nccl or ""),
            "libfabric": libfabric.group(1) if libfabric else "",
            "EFA driver": first_line(system.EFA_DRIVER),
            "NVIDIA driver": gpus.nvidia_driver(),
            "preflight": first_line(VERSION_FILE),
        }
        listed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        print_line("result", "network", f"{network}; adapters: {adapters}; versions: {listed}; exit code {code}")
        return code


def start_command(words: list[str], folder: str, look: Callable[[], bool] = lambda: False) -> int:
    """Run a command with NCCL's logs in `folder` ("": nowhere). Return its exit code, or one of this program's."""
    try:
        code = command.run_command(words, command.log_variables(folder, os.environ), look)
    except OSError as error:
        print_line("error", "command", f"{words[0]}: {error.strerror}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
    return WRONG_NETWORK if code is None else code


def main(words: list[str]) -> int:
    """Run the program and return its exit code."""
    options = parse_arguments(words)
    try:
        node, options.port = find_node(os.environ), int(os.environ.get("RDMA_PREFLIGHT_PORT", PORT))
        if options.port not in range(1, 1 << 16):
            raise ValueError(f"RDMA_PREFLIGHT_PORT={options.port} is no port")
    except (ValueError, KeyError) as error:
        print_line("error", "nodes", f"the job's variables cannot be read: {error}")
        return 2
    if options.nodes is not None:
        node = node._replace(nodes=options.nodes, number=options.node)
    node = node._replace(first=options.first or node.first)
    for number in (signal.SIGTERM, signal.SIGHUP):  # before there is a command that gets them
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if not node.is_rank:
        return Preflight(options, node).run(lambda _: None)
    if node.local_rank == 0:
        ranks = LocalRanks(node.socket_name(os.environ), node.local_ranks - 1)
        code = Preflight(options, node).run(ranks.answer)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):  # so far they were the command's
            signal.signal(number, lambda *_: sys.exit(code))
        ranks.answer(ranks.text, is_last=True)
        return code
    folder = ask_checking_rank(node.socket_name(os.environ))
    if not folder:
        place = f"local rank {node.local_rank}"
        reason = f"did not let {place} start" if folder == "" else f"is not there, and {place} waited for it"
        print_line("error", "nodes", f"local rank 0 of this node {reason}")
        return CHECK_FAILED
    return start_command(options.command, "" if folder == NO_FOLDER else folder) if options.command else 0
