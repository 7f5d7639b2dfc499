"""SGLang's server in a few lines, and programs that are had as wheels, for tests that start a server in parts."""

import subprocess
import sys

from uv import find_uv_bin

from rdma_images.core import paths

# Every other node connects to the first one; what answers requests has their numbers.
SGLANG = """
import argparse, http.server, json, os, socket, time
parser = argparse.ArgumentParser()
for name in ("model-path", "disaggregation-mode", "disaggregation-transfer-backend", "dist-init-addr", "host"):
    parser.add_argument("--" + name)
for name, usual in (("tp", 1), ("nnodes", 1), ("node-rank", 0), ("port", 30000)):
    parser.add_argument("--" + name, type=int, default=usual)
told = parser.parse_args()
if told.node_rank:
    first, port = told.dist_init_addr.rsplit(":", 1)
    while True:
        try:
            connection = socket.create_connection((first, int(port)), 5)
            break
        except OSError:
            time.sleep(0.2)
    connection.sendall(b"%d" % told.node_rank)
    connection.settimeout(None)
    connection.recv(1)
    raise SystemExit
ranks = [0]
if told.nnodes > 1:
    listener = socket.create_server(("", int(told.dist_init_addr.rsplit(":", 1)[1])))
    nodes = [listener.accept()[0] for _ in range(told.nnodes - 1)]
    ranks += [int(node.recv(9)) for node in nodes]
time.sleep(float(os.environ.get("LOAD_SECONDS", 0)))
me = {"server": socket.gethostname(), "mode": told.disaggregation_mode, "ranks": sorted(ranks), "tp": told.tp}
me["backend"] = os.environ.get("SGLANG_DISAGGREGATION_NIXL_BACKEND")
asked = 0
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.reply({**me, "asked": asked})
    def do_DELETE(self):
        os._exit(int(self.path.strip("/")))
    def do_POST(self):
        global asked
        asked += 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply({"text": "answer", "meta_info": {**me, "bootstrap_host": body.get("bootstrap_host")}})
    def reply(self, content):
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
# The nodes of a Slurm on one machine have addresses of their own by their names.
http.server.ThreadingHTTPServer((os.environ.get("SLURMD_NODENAME", told.host), told.port), Answer).serve_forever()
"""


def image(name: str, *packages: str) -> str:
    """Return the PATH of a virtual environment with packages, kept between runs."""
    folder = paths.state_folder() / name
    if not (folder / "complete").exists():
        uv = find_uv_bin()
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", folder / "bin/python", *packages], check=True)
        (folder / "complete").touch()
    return f"{folder}/bin:/usr/bin:/bin:/usr/sbin:/sbin"
