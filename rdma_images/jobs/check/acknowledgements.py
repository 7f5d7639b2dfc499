"""Comments by which a job's file acknowledges a finding: `# rdma-images: allow RULE`, as linters have them."""

import re
from collections.abc import Mapping

COMMENT = re.compile(r"#[ \t]*rdma-images:[ \t]*allow[ \t]+(?P<rules>[\w.-]+(?:[ \t]*,[ \t]*[\w.-]+)*)")
LONE_COMMENT = re.compile(r"[ \t]*#(?!SBATCH\b)")


def allowed_rules(text: str) -> Mapping[int, frozenset[str]]:
    """Return the rules that a file's comments allow, by the number of the line that they are about, from 1.

    A comment is about its own line; one that has the line to itself is about the next line that is no comment.
    """
    allowed: dict[int, frozenset[str]] = {}
    pending: frozenset[str] = frozenset()
    for number, line in enumerate(text.split("\n"), 1) if "rdma-images:" in text else ():
        match = COMMENT.search(line)
        rules = frozenset(re.split(r"[ \t]*,[ \t]*", match["rules"])) if match else frozenset[str]()
        if LONE_COMMENT.match(line):
            pending |= rules
        elif pending or rules:
            allowed[number] = pending | rules
            pending = frozenset()
    return allowed
