"""Measurements of a machine: its devices, its GPUs, and the all-reduces that ran on them."""

from rdma_images.inspection.values import Count, MeasuredValue, ToolRun


class RdmaDevice(MeasuredValue):
    """An RDMA device, as the kernel describes it.

    `mtu` is 0 where it has no network interface.
    """

    driver: str
    state: str
    mtu: Count
    p2p: str


class HugePages(MeasuredValue):
    """Huge pages in all and free, and the bytes of one."""

    total: Count
    free: Count
    bytes: Count


class Devices(MeasuredValue):
    """The devices and limits of a container; `memlock` is in bytes, None for no limit."""

    instance: str
    vendor: str
    nodes: list[str]
    rdma: dict[str, RdmaDevice]
    efa_domains: list[str]
    memlock: int | None
    huge_pages: HugePages
    compat_mode: str
    modules: list[str]
    nvidia_module: str
    tools: dict[str, ToolRun]

    def of_fabric(self, fabric: str) -> dict[str, RdmaDevice]:
        """Return the RDMA devices of a fabric by name; those of eRDMA are known by their driver, or else their name."""
        return {
            name: device
            for name, device in self.rdma.items()
            if device.driver == fabric or (fabric == "erdma" and "erdma" in name)
        }


class RankAnswer(MeasuredValue):
    """The answer of a process of an all-reduce: whether the sum is right, and the seconds of one round.

    `error` is why there is none.
    """

    error: str = ""
    is_right: bool = False
    seconds: float = 0.0


class AllReduceRun(MeasuredValue):
    """An all-reduce of so many `bytes`, and the answers of its processes.

    `settings` are beyond the image's environment (None: taken away).
    """

    settings: dict[str, str | None]
    bytes: Count
    answers: list[RankAnswer]
    log: str


class RequestedNetwork(MeasuredValue):
    """The way from NCCL to the image's network.

    `plugin` is that for libfabric, "" for what NCCL has itself. `required_network` is NCCL_NET of the environment;
    `device` is whether the machine has a device for the network.
    """

    plugin: str
    required_network: str
    device: bool


class MeasuredGpus(MeasuredValue):
    """The GPUs, the network, and the runs "default", "two-nodes" and "refusal"."""

    count: Count
    names: list[str]
    network: RequestedNetwork
    runs: dict[str, AllReduceRun]
