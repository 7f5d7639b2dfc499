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
    """The devices and limits of a container; `memlock` in bytes, None for no limit."""

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


class AllReduceRow(MeasuredValue):
    """One size of an all-reduce: bytes, elements that were wrong, bus bandwidth in GB/s."""

    bytes: Count
    wrong: Count
    busbw: float


class AllReduceRun(MeasuredValue):
    """An all-reduce, its variables, and its result.

    `settings` are beyond the image's environment (None: taken away). Exit codes (None: stopped) and rows are by
    process; of nccl-tests there is one, which reports for all ranks.
    """

    program: str
    settings: dict[str, str | None]
    codes: list[int | None]
    rows: list[list[AllReduceRow]]
    log: str


class RequestedNetwork(MeasuredValue):
    """The way from NCCL to the image's network.

    `plugin` is that for libfabric, "" for what NCCL has itself. `insists` is NCCL_NET of the image's environment;
    `device` is whether the machine has a device for the network.
    """

    plugin: str
    insists: str
    device: bool


class MeasuredGpus(MeasuredValue):
    """The GPUs, the network, and the runs "default", "two-nodes" and "refusal"."""

    count: Count
    names: list[str]
    network: RequestedNetwork
    runs: dict[str, AllReduceRun]
