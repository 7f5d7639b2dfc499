"""What a failed build says at its end: the failed step's own first complaint, in lines that BuildKit printed."""

import pytest

from rdma_images.build import run_bake

# docker buildx 0.13 with the engine of Debian 13, plain progress.
UNKNOWN_PACKAGE = """\
#5 [2/2] RUN <<'SH' (set -eu...)
#5 0.865 Reading package lists...
#5 1.237 E: Unable to locate package nonesuch-package
#5 1.238 Building dependency tree...
#5 ERROR: process "/bin/sh -c set -eu" did not complete successfully: exit code: 100
------
1.237 E: Unable to locate package nonesuch-package
ERROR: failed to solve: process "/bin/sh -c set -eu" did not complete successfully: exit code: 100
"""
FULL_IN_A_STEP = """\
#5 0.099 head: error writing 'standard output': No space left on device
#5 ERROR: process "/bin/sh -c set -eu" did not complete successfully: exit code: 1
"""
FULL_IN_BUILDKIT = """\
#7 1.237 E: Write error - write (28: No space left on device)
#9 ERROR: failed to copy: write /var/lib/x/ingest: no space left on device
ERROR: failed to solve: failed to copy: write /var/lib/x/ingest: no space left on device
"""


@pytest.mark.parametrize(
    ("output", "cause", "fix"),
    [
        (UNKNOWN_PACKAGE, ": E: Unable to locate package nonesuch-package", "its last lines above name the step"),
        (FULL_IN_A_STEP, ": head: error writing 'standard output': No space left on device", "free disk space; "),
        (FULL_IN_BUILDKIT, ": E: Write error - write (28: No space left on device)", "free disk space; "),
        ("#5 ERROR: exit code: 1", "", "its last lines above name the step"),
        ("", "", "its last lines above name the step"),
    ],
)
def test_a_failed_build_ends_with_its_cause(output: str, cause: str, fix: str) -> None:
    first, second = str(run_bake._failed(["efa-1"], output.splitlines())).split("\n")
    assert first == f"BuildKit could not build efa-1{cause}"
    assert second.startswith(fix)
