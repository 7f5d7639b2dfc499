#!/opt/venv/bin/python
"""usage: train

The command that SageMaker starts in each container of a training job (rdma-images). It reads the job from
/opt/ml/input/config, waits until every host of it has an address, and starts torchrun with the job's program: one
process for each GPU.

It sets SM_* variables, as SageMaker's training toolkit documents them, and GLOO_SOCKET_IFNAME. It sets no variable of
NCCL, of libfabric or of rdma-core: those are the image's, or the job's own.
"""

import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from sagemaker_job import JobError, arguments, count_gpus, find_program, find_source, read_job, say, variables
from sagemaker_launch import exit_code, run, torchrun, torchrun_options, wait_for

LONGEST = 1024  # characters of /opt/ml/output/failure that SageMaker shows


def train(ml: Path) -> tuple[int, str]:
    """Run this host's part of the job. Return exit code and, unless that is 0, the reason. Raises JobError."""
    job = read_job(ml)
    source = find_source(job)
    program = find_program(job, source)
    gpus = count_gpus()
    if len(job.hosts) > 1:
        wait_for(job.hosts)
    environment = {**os.environ, **variables(job, program, source, gpus)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(source), environment.get("PYTHONPATH")]))
    if job.interface in (name for _, name in socket.if_nameindex()):
        # Without it gloo takes the address of the container's host name, which need not be the job's.
        environment.setdefault("GLOO_SOCKET_IFNAME", job.interface)
    options = [*torchrun_options(job, gpus or 1), program, *arguments(job)]
    say(f"{job.current} of {', '.join(job.hosts)}: torchrun {' '.join(options)}")
    return run([sys.executable, str(Path(__file__).resolve()), "--torchrun", *options], environment, source)


def main(words: Sequence[str]) -> int:
    """Run the command as `words` say, and return its exit code."""
    if words[:1] == ["--torchrun"]:
        return torchrun(words[1:])
    if words:
        print(__doc__)
        return 0 if words == ["--help"] else 2
    # The first process of a container ignores the signal unless it handles it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(exit_code(-signal.SIGTERM)))
    ml = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    try:
        code, failure = train(ml)
        if code:
            tell_failure(ml, failure)
    except (JobError, OSError) as error:
        say(str(error))
        tell_failure(ml, str(error))
        return 1
    return code


def tell_failure(ml: Path, text: str) -> None:
    """Write why the job failed to where SageMaker reads it, unless the job's program has written that itself."""
    file = ml / "output" / "failure"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as failure:
            failure.write(text[:LONGEST])
    except FileExistsError:
        say(f"{file} is the program's own")
    except OSError as error:
        say(f"{file} cannot be written: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
