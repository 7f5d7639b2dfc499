"""The project as users install it: its wheel, in an environment of its own."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from rdma_images.core import paths


def installed(folder: Path) -> Path:
    """Return the command `rdma-images` of this checkout's wheel, installed in `folder`.

    What the wheel depends on is taken from the environment of the tests, which has it.
    """
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=paths.PROJECT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    pip_install = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet"]
    pip_install += ["--ignore-installed"]  # whatever metadata lies on the path of the tests
    subprocess.run([*pip_install, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    for path in (folder, *folder.parents):  # pytest's own folders are for their user alone
        if path == Path("/tmp"):
            break
        path.chmod(path.stat().st_mode | 0o055)
    return venv / "bin" / "rdma-images"
