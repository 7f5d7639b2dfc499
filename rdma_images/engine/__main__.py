"""Print shell variables for the engine: `eval "$(python -m rdma_images.engine)"`."""

import shlex
import sys

from rdma_images import engine
from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError


def main() -> int:
    """Print the engine's variables as shell lines; the exit code of the process."""
    try:
        with files.as_file_error():
            running_engine = engine.ensure(lambda line: print(line, file=sys.stderr))
    except RdmaImagesError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for name, value in running_engine.env.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
