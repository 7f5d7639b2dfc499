"""Servers on the loopback interface for what no real part here can be.

A registry with bearer tokens and referrers, and Alibaba's control plane. They record what they were asked.
"""

import base64
import hashlib
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.1, quiet, with the body read and answers of JSON or bytes."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one write an answer: two small ones wait for each other

    def answer(self, status: int, body: bytes | dict[str, object] = b"", headers: dict[str, str] | None = None) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        fields = {"Content-Type": "application/json", "Content-Length": str(len(raw))} | (headers or {})
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def log_message(self, *_: object) -> None:
        return


class Server(ThreadingHTTPServer):
    """Prints nothing of a client that leaves in the middle."""

    def handle_error(self, *arguments: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*arguments)


@contextmanager
def served(handler: type[Handler]) -> Iterator[str]:
    """Serve the handler on a free port, and yield "127.0.0.1:port"."""
    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Store:
    """A registry in memory.

    `auth` is "none", "basic" or "bearer"; `referrers` says whether it has that API.

    A blob is in every repository, but those in `only_in` are in the one named there, until they are mounted.
    """

    def __init__(self, auth: str = "none", referrers: bool = True) -> None:
        self.auth, self.has_referrers = auth, referrers
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        self.password, self.token = "secret", "token-1"
        self.tokens: list[dict[str, list[str]]] = []
        self.only_in: dict[str, str] = {}
        self.mounts = True

    def handler(self) -> type[Handler]:
        store = self

        class Registry(Handler):
            def handle_one(self) -> None:
                url = urlsplit(self.path)
                body = self.body()
                store.requests.append((self.command, url.path))
                if url.path == "/token":
                    return store.send_token(self, url, body)
                if not store.allowed(self.headers.get("Authorization", "")):
                    challenge = 'Basic realm="test"'
                    if store.auth == "bearer":
                        challenge = f'Bearer realm="http://{self.headers["Host"]}/token",service="test"'
                    return self.answer(401, {"errors": [{"code": "UNAUTHORIZED"}]}, {"WWW-Authenticate": challenge})
                return store.serve(self, url, body)

            do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = handle_one

        return Registry

    def allowed(self, authorization: str) -> bool:
        if self.auth == "basic":
            return authorization == "Basic " + base64.b64encode(f"ci:{self.password}".encode()).decode()
        return self.auth == "none" or authorization == f"Bearer {self.token}"

    def send_token(self, request: Handler, url: SplitResult, body: bytes) -> None:
        self.tokens.append({**parse_qs(url.query), **parse_qs(body.decode())})
        pair = "Basic " + base64.b64encode(f"ci:{self.password}".encode()).decode()
        if request.headers.get("Authorization") == pair:
            return request.answer(200, {"token": self.token})
        return request.answer(401, {"errors": [{"code": "UNAUTHORIZED"}]})

    def serve(self, request: Handler, url: SplitResult, body: bytes) -> None:
        parts = url.path.split("/")
        if url.path == "/v2/":
            return request.answer(200, {})
        kind, reference = parts[-2], parts[-1]
        if "/blobs/uploads/" in url.path:
            mounted = parse_qs(url.query).get("mount", [""])[0]
            if self.mounts and mounted in self.blobs:
                assert parse_qs(url.query)["from"] == [self.only_in.pop(mounted)]
                return request.answer(201)
            if request.command == "POST":
                return request.answer(202, b"", {"Location": f"{url.path}1?_state=abc"})
            digest = parse_qs(url.query)["digest"][0]
            self.blobs[digest] = body
            return request.answer(201)
        if kind == "blobs":
            elsewhere = reference in self.only_in and not url.path.startswith(f"/v2/{self.only_in[reference]}/")
            blob = None if elsewhere else self.blobs.get(reference)
            return request.answer(200, blob) if blob is not None else self.missing(request)
        if kind == "referrers" and self.has_referrers:
            return request.answer(200, self.referrers(reference), {"Content-Type": INDEX})
        if kind == "manifests" and request.command == "PUT":
            return self.put(request, reference, body)
        if kind == "manifests" and reference in self.manifests:
            media_type, raw = self.manifests[reference]
            digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
            return request.answer(200, raw, {"Content-Type": media_type, "Docker-Content-Digest": digest})
        return self.missing(request)

    def put(self, request: Handler, reference: str, body: bytes) -> None:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        for name in {reference, digest}:
            self.manifests[name] = (request.headers["Content-Type"], body)
        subject = json.loads(body).get("subject")
        return request.answer(201, b"", {"OCI-Subject": subject["digest"]} if subject and self.has_referrers else {})

    def referrers(self, digest: str) -> dict[str, object]:
        descriptors = []
        for name, (media_type, raw) in self.manifests.items():
            body = json.loads(raw)
            if name.startswith("sha256:") and body.get("subject", {}).get("digest") == digest:
                described = {"mediaType": media_type, "digest": name, "size": len(raw)}
                extra = {key: body[key] for key in ("artifactType", "annotations") if key in body}
                descriptors.append(described | extra)
        return {"schemaVersion": 2, "mediaType": INDEX, "manifests": descriptors}

    def missing(self, request: Handler) -> None:
        return request.answer(404, {"errors": [{"code": "NAME_UNKNOWN", "message": "not here"}]})


INDEX = "application/vnd.oci.image.index.v1+json"


class AlibabaRequest(Handler):
    """How that API says yes and no."""

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, {"Code": code, "Message": code, "RequestId": "0A1B", "HostId": "cr"})

    def grant(self, **fields: int | str) -> None:
        self.answer(200, {"Code": "success", "IsSuccess": True, "RequestId": "0A1B", **fields})


class Alibaba:
    """Container Registry's API of 2018-12-01: a header names the action, the query its values."""

    def __init__(
        self, namespaces: Sequence[str] = (), repositories: Sequence[str] = (), denied: Sequence[str] = ()
    ) -> None:
        self.namespaces, self.repositories, self.denied = set(namespaces), set(repositories), set(denied)
        self.requests: list[tuple[str, dict[str, str]]] = []

    def handler(self) -> type[Handler]:
        double = self

        class Api(AlibabaRequest):
            def do_POST(self) -> None:
                self.body()
                fields = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
                action = self.headers["x-acs-action"]
                double.requests.append((action, fields))
                if action in double.denied:
                    return self.refuse(403, "Forbidden.RAM")
                getattr(double, action)(self, fields)
                return None

            def do_GET(self) -> None:
                self.do_POST()  # an action that only reads may come so

        return Api

    def GetAuthorizationToken(self, request: AlibabaRequest, _fields: object) -> None:
        request.grant(TempUsername="cr_temp_user", AuthorizationToken="pass:word", ExpireTime=1795000000000)

    def GetRepository(self, request: AlibabaRequest, fields: dict[str, str]) -> None:
        if f"{fields['RepoNamespaceName']}/{fields['RepoName']}" not in self.repositories:
            return request.refuse(404, "REPO_NOT_EXIST")
        return request.grant(RepoName=fields["RepoName"], RepoId="crr-1")

    def CreateRepository(self, request: AlibabaRequest, fields: dict[str, str]) -> None:
        if fields["RepoNamespaceName"] not in self.namespaces:
            return request.refuse(404, "NAMESPACE_NOT_EXIST")
        self.repositories.add(f"{fields['RepoNamespaceName']}/{fields['RepoName']}")
        return request.grant(RepoId="crr-1")


def page(handler: Handler) -> None:
    handler.answer(200, b"<html>Welcome!</html>", {"Content-Type": "text/html"})


class PageHandler(Handler):
    """A web server that knows nothing of registries."""

    do_GET = do_HEAD = page
