"""HTTP requests to one registry: logins, and responses as errors."""

import base64
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from rdma_images.core import http
from rdma_images.core.plain import decode_json
from rdma_images.registry import registry_errors
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import is_loopback

REGISTRY_TIMEOUT_SECONDS = (10.0, 60.0)  # seconds to connect, seconds without a byte
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
LoginSource = Callable[[], Login | None]


class Connection:
    """Requests to one registry; safe for several threads.

    `login` is called when the registry asks for credentials, and again when it stops accepting what it took before.
    """

    def __init__(
        self,
        host: str,
        login: LoginSource,
        tls: bool | None = None,
        ca: Path | None = None,
        timeout: tuple[float, float] = REGISTRY_TIMEOUT_SECONDS,
        retry_policy: http.RetryPolicy | None = None,
    ) -> None:
        self.host = host
        # With every request and not on the session, where the environment's bundle would win over the one chosen.
        self._request_options: dict[str, Any] = {"timeout": timeout} | ({"verify": str(ca)} if ca else {})
        self._retry_policy = retry_policy
        self._login_source = login
        secure = tls if tls is not None else not is_loopback(host)
        self.base = f"{'https' if secure else 'http'}://{host}"
        self._local = threading.local()
        self._lock = threading.Lock()
        self._headers: dict[str, str] = {}  # scope -> Authorization
        self._login: Login | None = None

    def login(self, fresh: bool = False) -> Login | None:
        """Return the login in use, fetched once; `fresh` fetches it again (after it has expired)."""
        with self._lock:
            if self._login is None or fresh:
                self._login = self._login_source()
                self._headers.clear()
            return self._login

    def check(self) -> None:
        """Check registry and login; docker would retry a wrong password for a minute."""
        self.request("GET", "/v2/", "", "this login")

    def request(
        self, method: str, path: str, scope: str, subject: str, ok: tuple[int, ...] = (200,), **options: Any
    ) -> requests.Response:
        """Return the response to a request below /v2/, or to an address the registry named.

        Args:
            scope: The repository and actions the request needs, several with blanks between.
            subject: What errors call the requested thing.

        Raises:
            RegistryError: The registry did not answer, or with a status that is not in `ok`.
        """
        url = path if path.startswith(("http://", "https://")) else f"{self.base}{path}"
        authorization = self._headers.get(scope)
        response = self._send(method, url, authorization, options)
        if response.status_code == 401:
            response = self._send(method, url, self._authorize(response, scope, subject, fresh=False), options)
        if response.status_code == 401 and authorization is not None:
            response = self._send(method, url, self._authorize(response, scope, subject, fresh=True), options)
        if response.status_code not in ok:
            raise registry_errors.status_error(self.host, subject, response.status_code, response.text)
        return response

    def _send(self, method: str, url: str, authorization: str | None, options: dict[str, Any]) -> requests.Response:
        headers = dict(options.get("headers", {}))
        # An address on another host (a storage redirect) gets no credentials.
        if authorization and url.startswith(f"{self.base}/"):
            headers["Authorization"] = authorization
        try:
            return self._session().request(
                method, url, **{**self._request_options, **options, "headers": headers, "auth": _without_netrc}
            )
        except requests.RequestException as error:
            raise registry_errors.transport_error(self.host, error) from None

    def _session(self) -> requests.Session:
        """Return this thread's session: requests does not promise that threads may share one."""
        if not hasattr(self._local, "session"):
            self._local.session = http.session(self._retry_policy)
            # A proxy from the environment can not lead to this machine itself.
            self._local.session.trust_env = not is_loopback(self.host)
        session: requests.Session = self._local.session
        return session

    def _authorize(self, refused: requests.Response, scope: str, subject: str, fresh: bool) -> str:
        """Return the Authorization header that answers the challenge of a refused request."""
        challenge = refused.headers.get("WWW-Authenticate", "")
        login = self.login(fresh)
        scheme = challenge.partition(" ")[0].lower()
        if scheme == "basic":
            if login is None:
                raise registry_errors.UnauthorizedError(
                    f"{self.host} asks for credentials for {subject}, and there are none\n"
                    "name them in registries.yaml, or log in with docker"
                )
            pair = f"{login.username}:{login.password}".encode()
            header = f"Basic {base64.b64encode(pair).decode()}"
        elif scheme == "bearer":
            header = f"Bearer {self._token(dict(_CHALLENGE.findall(challenge)), scope, subject, login)}"
        else:
            raise registry_errors.status_error(self.host, subject, 401, refused.text)
        self._headers[scope] = header
        return header

    def _token(self, challenge: dict[str, str], scope: str, subject: str, login: Login | None) -> str:
        """Return a bearer token from the registry's realm (distribution specification)."""
        query = {"service": challenge.get("service", ""), "scope": scope.split()}
        realm = challenge.get("realm", "")
        if self.base.startswith("https:") and not realm.startswith("https:"):
            raise registry_errors.UnauthorizedError(
                f"{self.host} asks for the credentials unencrypted, at {realm}, and they are not sent\n"
                "have its token address begin with https"
            )
        try:
            auth = (login.username, login.password) if login is not None else _without_netrc
            response = self._session().get(realm, params=query, auth=auth, **self._request_options)
        except requests.RequestException as error:
            raise registry_errors.transport_error(
                realm.partition("//")[2].partition("/")[0] or self.host, error
            ) from None
        if response.status_code != 200:
            status = 401 if response.status_code in (400, 403) else response.status_code
            raise registry_errors.status_error(self.host, subject, status, response.text)
        body = parse_document(response.content, f"the token that {realm} gave for {subject}")
        token = str(body.get("token") or body.get("access_token") or "")
        if not re.fullmatch(r"[\x21-\x7e]*", token):  # it becomes a header
            raise registry_errors.MalformedError(
                f"{realm} sent a malformed token for {subject}\nlook into the log of the server there"
            )
        return token


def _without_netrc(prepared: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return the request unchanged, which keeps requests from using ~/.netrc."""
    return prepared


def parse_document(raw: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object in `raw`. Raises MalformedError for anything else."""
    try:
        parsed = decode_json(raw)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        # Without its bytes: they may hold a token.
        raise registry_errors.MalformedError(
            f"{name} is not a JSON object\ncheck that a registry answers at this address, and not a web page or a proxy"
        )
    return parsed
