"""What packages open of CUDA by its name: asked of their own functions, and read from their data."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rdma_images.validate.probes import opened

SOURCE = """
#include <dlfcn.h>
#include <stdlib.h>
#include <string>
struct Status { void* representation; };
struct Representation { int references; int code; std::string words; };
static Status open(const char* name) {
  if (dlopen(name, RTLD_NOW)) return {(void*)1};
  auto* failed = new Representation{1, 9, std::string("Could not load dynamic library '") + name + "'; dlerror: none"};
  return {(void*)((unsigned long)failed | 1)};
}
namespace tsl { namespace internal { struct Result { Status status; long value[3]; ~Result() {} };
struct CachedDsoLoader {
  static Result GetCudnnDsoHandle(); static Result GetCublasDsoHandle(); static Result GetCufftDsoHandle();
};
Result CachedDsoLoader::GetCudnnDsoHandle() { return {open("libcudnn.so.99"), {}}; }
Result CachedDsoLoader::GetCublasDsoHandle() { return {open("libc.so.6"), {}}; }
Result CachedDsoLoader::GetCufftDsoHandle() { return {open("libc.so.6"), {}}; }
}}
"""


def compiled(folder: Path, name: str, source: str) -> str:
    compiler = shutil.which("g++") or pytest.skip("no g++ to make a library with")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.cc").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / name, folder / "source.cc"], check=True)
    return str(folder / name)


def test_tensorflow_is_asked_what_it_does_not_find(tmp_path: Path) -> None:
    path = compiled(tmp_path / "site-packages" / "tensorflow", opened.TENSORFLOW_LIBRARY, SOURCE)
    row = {"package": "tensorflow 2.18.0", "file": path, "missing": ["libcudnn.so.99"]}
    assert opened.unopened([str(tmp_path)], {path: "tensorflow 2.18.0"}) == [row]


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        ("libcudnn.so.9", ["libcudnn_ops_infer.so.98", "libcudnn_ops_infer.so.99"]),
        ("libcudnn_ops_infer.so.98", None),
        ("libcufft.so.12", None),
    ],
)
def test_names_in_a_library_are_looked_for_where_another_release_is(
    tmp_path: Path, present: str, missing: list[str] | None
) -> None:
    """Of several releases one is enough; where nothing of the family is there, the package is there without a GPU."""
    names = 'extern const char first[] = "libcudnn_ops_infer.so.98", second[] = "libcudnn_ops_infer.so.99";'
    path = compiled(tmp_path / "site-packages" / "speech", "libspeech.so", names)
    (tmp_path / "nvidia" / "cudnn" / "lib").mkdir(parents=True)
    (tmp_path / "nvidia" / "cudnn" / "lib" / present).touch()
    found = opened.unopened([str(tmp_path)], {path: "speech 1.0"})
    assert [row["missing"] for row in found] == ([missing] if missing else [])
