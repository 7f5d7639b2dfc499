"""Options that several tasks share, and what `--help` says of them."""

import re

from rdma_images.core.errors import RefusedError

CHOICE = {
    "target": "A target of matrix.yaml; may be given more than once. Without it: every target.",
    "all": "The whole default matrix of the targets instead of their default rows.",
    "set": "axis=value: any value in facts/, also one outside the matrix; may be given more than once.",
}
ONTO = {"onto": "NAME@sha256:…: add the fabric of the one --target to this existing image."}
MANY = ("target", "set")
JSON = {"json": "JSON on standard output, for programs."}
REHEARSE = {"rehearse": "Replace unreachable sources, and only those, by stand-ins; the image cannot be published."}
PUBLISHING = {
    "to": "A registry of registries.yaml; may be given more than once.",
    "sign": "Sign with cosign: a key file, a key service's reference (awskms://…), or keyless (the CI job's identity).",
}
POLICY = {"policy": "The rules for vulnerabilities; by default policy.yaml, where there is one."}


def seconds(text: str) -> float:
    """Return a time as typed, in seconds."""
    match = re.fullmatch(r"([1-9][0-9]{0,4})(s|m|h)", text)
    if not match:
        raise RefusedError(f"--timeout {text}: not a time\nwrite it as 90s, 30m or 2h")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
