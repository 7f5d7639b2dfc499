"""A package index with a small CUDA package that has no wheel, beside the real index."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rdma_images.inputs import mirrors, sources
from tests.support.package_index import make_sdist

NAME, VERSION = "cuda-doubled", "1.0"
FILE = f"cuda_doubled-{VERSION}.tar.gz"

SETUP = """
import os
import torch  # as many such packages do: nothing but the image has it
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

assert os.environ["MAX_JOBS"] and os.environ["TORCH_CUDA_ARCH_LIST"] and os.environ["FORCE_CUDA"] == "1"
setup(
    name="cuda-doubled",
    version="1.0",
    py_modules=["cuda_doubled"],
    ext_modules=[CUDAExtension("_cuda_doubled", ["doubled.cpp", "kernel.cu"], libraries=["cublas"])],
    cmdclass={"build_ext": BuildExtension},
)
"""
# torch's headers are found; pybind11 and the whole of them would take half a minute of a processor.
BINDING = """
#include <Python.h>
#include <c10/macros/Macros.h>
long launches();
static PyObject *counted(PyObject *, PyObject *) { return PyLong_FromLong(launches()); }
static PyMethodDef methods[] = {{"launches", counted, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_cuda_doubled", nullptr, -1, methods};
extern "C" C10_EXPORT PyObject *PyInit__cuda_doubled() { return PyModule_Create(&definition); }
"""
KERNEL = """
#include <cublas_v2.h>
#include <cuda_runtime.h>
__global__ void doubled(float *values) { values[threadIdx.x] *= 2; }
long launches() {
    int count = 0;
    cublasHandle_t handle = nullptr;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) {
        cublasCreate(&handle);
        doubled<<<1, 1>>>(nullptr);
    }
    return count;
}
"""
PYPROJECT = """
[build-system]
requires = ["setuptools", "torch"]
build-backend = "setuptools.build_meta"
"""
METADATA = f"Metadata-Version: 2.2\nName: {NAME}\nVersion: {VERSION}\nRequires-Dist: torch\nRequires-Dist: tabulate\n"


def sdist() -> bytes:
    """Return the source archive of the package."""
    files = {
        "PKG-INFO": METADATA,
        "setup.py": SETUP,
        "cuda_doubled.py": "from _cuda_doubled import launches\n",
        "doubled.cpp": BINDING,
        "kernel.cu": KERNEL,
        "pyproject.toml": PYPROJECT,
    }
    return make_sdist(FILE.removesuffix(".tar.gz"), files)


@contextmanager
def source_index() -> Iterator[str]:
    """Yield the address of the index; who asks it for another package is sent to the real one."""
    real = sources.index_for(mirrors.load())[0].rstrip("/")
    content = sdist()
    link = f'<a href="/files/{FILE}#sha256={hashlib.sha256(content).hexdigest()}">{FILE}</a>'
    resources = {
        f"/simple/{NAME}/": (link.encode(), "text/html"),
        f"/files/{FILE}": (content, "application/octet-stream"),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.path not in resources:
                self.send_response(302)
                self.send_header("Location", real + self.path.removeprefix("/simple"))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content, kind = resources[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: a test's output is the product's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()
