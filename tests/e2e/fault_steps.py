"""A fault of an image: the steps that plant it, and the one validator that must report it."""

import base64
from dataclasses import dataclass, field

from rdma_images.core.check import Check
from rdma_images.core.paths import PROJECT

# The table of what the faults' checks say, which tests/e2e/faults_table.py writes.
DOCS = PROJECT / "docs" / "reference" / "validators.md"
BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"
LONGEST = 120  # characters of a cell
HEADER = "| check | fault | it says |\n|---|---|---|\n"
S = "/opt/venv/site-packages"
NCCL = f"{S}/nvidia/nccl"
LIB = "/usr/lib/x86_64-linux-gnu"
EFA, OFI = "/opt/amazon/efa", "/opt/amazon/ofi-nccl"
CONF = "RUN > /etc/nccl.conf echo"
LABEL = "LABEL io.rdma-images."
# A rehearsal that passes for an image to ship; what its labels say is true of its packages.
AS_REAL = (
    "RUN sed -i 's/+standin$//' /var/lib/dpkg/status",
    f'{LABEL}rehearsal="" {LABEL[6:]}component.libfabric=2.1.0 {LABEL[6:]}component.rdma-core=56.1',
)
# What the stand-in brings is not what the installer would, and its plugin does not start.
OTHER = ("chain.holds", "libfabric.version")
PLANT = "mkdir -p /opt/planted && echo /opt/planted > /etc/ld.so.conf.d/000-planted.conf"


@dataclass(frozen=True)
class ImageFault:
    """A fault: `steps` added to the good image, its `needs` by name, and its `tag`.

    `besides` are other validators that rightly report the same fault.
    """

    validator: str
    title: str
    steps: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    tag: str = ""
    besides: tuple[str, ...] = ()
    planned: dict[str, str] = field(default_factory=dict)  # components of the plan that the image does not have
    instance: str = ""  # the instance type that is asked for


def rename(plugin_symbol: str, kept_symbol: str, file: str = f"{OFI}/lib/libnccl-net-ofi.so") -> str:
    """Return a step that renames every versioned symbol of a plugin.

    To what nobody looks for, and v6 to `kept_symbol`.
    """
    code = (
        "import re;"
        f"p='{file}';d=open(p,'rb').read();"
        f"d=re.sub(rb'\\bnccl({plugin_symbol[4:]}\\d+)(?=\\0)',rb'xccl\\1',d);"
        f"d=re.sub(rb'\\bxccl{plugin_symbol[4:]}6(?=\\0)',b'{kept_symbol}',d);"
        "open(p,'wb').write(d)"
    )
    return f'RUN python3 -c "{code}"'


def decoded_at_the_start(line: str) -> tuple[str, str]:
    """Return the steps for an entry point whose script hides its line of shell."""
    encoded = base64.b64encode(f"{line}\n".encode()).decode()
    script = f'#!/bin/sh\\neval "$(echo {encoded} | base64 -d)"\\nexec "$@"\\n'
    return f"RUN printf '{script}' > /opt/start && chmod 755 /opt/start", 'ENTRYPOINT ["/opt/start"]'


def documented_rows() -> dict[str, str]:
    """Return the rows of the table in DOCS, by check."""
    table = DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    return {line.partition("`")[2].partition("`")[0]: line for line in table.removeprefix(HEADER).splitlines()}


def table_row(fault: ImageFault, check: Check) -> str:
    """Return the row of a fault: what its check found, without sources, short enough for a table."""
    found = " ".join(check.actual.split()).partition(" [")[0].replace("|", "\\|")
    cell = found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"
    return f"| `{fault.validator}` | {fault.title} | {cell} |"
