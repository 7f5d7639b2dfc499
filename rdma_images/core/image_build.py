"""A built image, and where its parts came from."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Build:
    """An image that is in an engine."""

    image_id: str
    ref: str  # "rdma-images/<target>:<tag>", with "-rehearsal" at the end of a rehearsal's tag
    digest: str  # of the manifest, "sha256:…": what validate checks and publish pushes
    inputs: str  # digest of all that decides the image's bytes: same inputs, nothing to do
    rehearsal: tuple[str, ...]  # ids of the sources that stand-ins replaced; empty for an image to ship
    finished: str  # ISO 8601, UTC
    seconds: float
    revision: str = ""  # of the sources, as the image's label has it
    builder: dict[str, str] = field(default_factory=dict)  # program -> version, of those that built it
    layers: dict[str, int] = field(default_factory=dict)  # digest -> bytes, of the wheels' layers that it was built on
    layers_at: str = ""  # the repository that has these, "host/name"; empty where no registry was asked
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 of matrix.yaml and of the locks, by path
