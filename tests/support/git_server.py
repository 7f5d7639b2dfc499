"""Git's own server of repositories over HTTP, behind a login where a test wants one."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def commit(folder: Path, files: Mapping[str, str]) -> str:
    """Make a repository with one more commit of `files` in `folder`; return the commit."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    who = {f"GIT_{role}_{what}": "test@test.example" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "change"]):
        subprocess.run(["git", *words], cwd=folder, env=os.environ | who, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    return head.stdout.strip()


@contextmanager
def serve(root: Path, login: str = "") -> Iterator[str]:
    """Serve the repositories below `root`; yield the address. `login` is "name:password"."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            expected = f"Basic {base64.b64encode(login.encode()).decode()}"
            if login and self.headers.get("Authorization") != expected:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            environ = os.environ | {
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = subprocess.run(["git", "http-backend"], input=body, env=environ, capture_output=True).stdout
            head, _, content = answer.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(headers.pop("Status", "200").partition(" ")[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
