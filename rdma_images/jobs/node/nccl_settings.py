"""Read what NCCL is set to: by variables, and by its files, which no variable shows."""

from __future__ import annotations

import os
import pwd
import re
from typing import TYPE_CHECKING

from rdma_images.jobs.node.system import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rdma_images.jobs.node.finding import Finding

# Of NVIDIA's images or of what NCCL prints, and no setting of how it runs.
OTHER_VARIABLES = re.compile(r"NCCL_(VERSION|DEBUG\w*|HOSTID|CONF_FILE)")


def nccl_files(root: str) -> list[str]:
    """Return the files that NCCL reads, in the order in which they count."""
    file = os.environ.get("NCCL_CONF_FILE", "")
    if not file:
        try:
            file = pwd.getpwuid(os.getuid()).pw_dir + "/.nccl.conf"
        except KeyError:  # a user without an entry, as in OpenShift
            return [root + "/etc/nccl.conf"]
    return [root + file, root + "/etc/nccl.conf"]


def set_variables_of_files(root: str) -> Iterator[Finding]:
    """Set the variables of NCCL's files that are not set, as NCCL does; yield them."""
    for path in nccl_files(root):
        texts = []
        for line in read_file(path).splitlines():
            name, separator, value = line.partition("=")
            if separator and name.startswith("NCCL_") and name not in os.environ:
                os.environ[name] = value
                texts.append("%s=%s" % (name, value))
        if texts:
            yield "note", "settings", "%s sets %s" % (path, ", ".join(texts)[:300])


def describe_settings() -> str:
    """Return NCCL's variables that are set, with their values; "" for none."""
    rows = ["%s=%s" % row for row in sorted(os.environ.items()) if row[0].startswith("NCCL_")]
    return ", ".join(row for row in rows if not OTHER_VARIABLES.fullmatch(row.partition("=")[0]))
