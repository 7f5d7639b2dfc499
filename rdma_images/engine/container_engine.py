"""What an engine is, to everyone who uses one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Engine:
    """A Docker engine that answers, and how to talk to it.

    `env` is all that a `docker` child process needs beside the environment of this one. `build_network` is what a RUN
    needs to reach the network: "host" where the engine has no bridge.
    """

    name: str  # "private", or the name of the docker context
    kind: Literal["existing", "private"]
    host: str  # "unix:///…/docker.sock"
    version: str  # of the daemon
    buildx: str
    store: Literal["containerd", "classic"]
    build_network: Literal["default", "host"]
    env: Mapping[str, str] = field(default_factory=dict)

    def environ(self) -> dict[str, str]:
        """Return the whole environment of a `docker` child process."""
        return {**os.environ, **self.env}
