"""Which programs and libraries need the GPU stack, as real ELF files and the real loader have it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rdma_images.validate.probes import libraries, stack_users
from rdma_images.validate.probes.rootfs import Root
from tests.unit.validate.test_linking import compiled


def program(folder: Path, name: str, *options: str) -> Path:
    """Return a program that was linked with these options."""
    compiler = shutil.which("gcc") or pytest.skip("no gcc to make one with")
    source, path = folder / "main.c", folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    source.write_text("int main(void) { return 0; }")
    subprocess.run([compiler, str(source), "-o", str(path), "-Wl,--no-as-needed", *options], check=True)
    return path


def test_what_needs_the_stack_by_way_of_another_library_is_listed_and_programs_are_first(tmp_path: Path) -> None:
    nccl = compiled(tmp_path, "libnccl.so.2", "int n;", "-Wl,-soname,libnccl.so.2")
    mine = compiled(
        tmp_path, "libmine.so", "extern int n; int m(void) { return n; }", str(nccl), "-Wl,-soname,libmine.so"
    )
    other = compiled(tmp_path, "libother.so", "int o;")
    server = program(tmp_path, "server", str(mine), f"-Wl,-rpath-link,{tmp_path}", f"-Wl,-rpath,{tmp_path}")
    root, elf_files = Root(str(tmp_path)), stack_users.ElfFiles()
    assert len(list(elf_files.noted(root.entries()))) == 9
    assert elf_files.names >= {"libnccl.so.2", "libmine.so", "libother.so"}
    paths = [f"{tmp_path}{path}" for path in sorted(elf_files.paths)]
    assert set(paths) >= {*map(str, (server, mine, nccl, other))}
    users = stack_users.stack_users(paths, lambda path: libraries.needed_libraries(Root(), path))
    assert users == [str(server), str(mine)]
    nccl.unlink()
    loader = libraries.ImageLoader({})
    assert [loader.closure(path)["missing"] for path in users] == [["libnccl.so.2"], ["libnccl.so.2"]]


@pytest.mark.parametrize(
    "path",
    [
        "/opt/venv/lib/python3.12/site-packages/torch/lib/libx.so",
        "/usr/local/cuda-13.0/bin/tool",
        "/opt/nvidia/nsight-compute/bin/tool",
        "/usr/lib/x86_64-linux-gnu/libmca_common_ofi.so.10.0.2",
        "/opt/ucx/lib/ucx/libuct_rocm.so",
        "/opt/mpi/tests/bin/tool",
        "/usr/lib/stubs/libx.so",
        "/opt/venv/lib/python3.12/site-packages/nixl_cu12.libs/nixl/libplugin_GDS.so",
    ],
)
def test_what_is_whole_by_itself_or_opened_by_choice_is_passed_over(path: str) -> None:
    assert stack_users.stack_users([path, "/opt/x/bin/tool"], lambda _: ["libnccl.so.2"]) == ["/opt/x/bin/tool"]


def test_a_version_that_this_glibc_lacks_is_reported(tmp_path: Path) -> None:
    library = compiled(tmp_path, "libx.so", "#include <stdlib.h>\nvoid *f(void) { return malloc(1); }")
    wants = stack_users.glibc_versions(str(library))
    (version,) = set(wants["libc.so.6"])
    assert stack_users.newer_glibc(Root(), [str(library)], libraries.ImageLoader({})) == {}
    content = library.read_bytes()
    library.write_bytes(content.replace(version.encode(), b"GLIBC_9." + b"9" * (len(version) - 8)))
    newer = stack_users.newer_glibc(Root(), [str(library)], libraries.ImageLoader({}))
    assert newer == {str(library): f"GLIBC_9.{'9' * (len(version) - 8)} of libc.so.6"}
    assert stack_users.glibc_versions("/dev/null") == {}
    assert stack_users.defined_versions("/dev/null") == []
