"""The certificate authorities that downloads trust, here and inside a build."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

import certifi

from rdma_images.core import files
from rdma_images.core.errors import RefusedError

VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # the first that is set counts


def bundle(chosen: Path | None, named_in: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the bundle to trust: the one chosen, the environment's, the system's, else the one certifi ships.

    `named_in` says where `chosen` was written. Raises RefusedError for a bundle that is named and has no certificate.
    """
    if chosen:
        return _checked(files.expanded(str(chosen)), named_in)
    for variable in VARIABLES:
        if value := environ.get(variable):
            return _checked(Path(value), f"${variable}")
    system = ssl.get_default_verify_paths().openssl_cafile
    return next((p for p in (Path(system), *SYSTEM_BUNDLES) if p.is_file()), Path(certifi.where()))


# Where distributions keep the bundle that their certificate updates write. Python's default may be another file.
SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/cert.pem"),
)


def _checked(path: Path, named_in: str) -> Path:
    try:
        if ssl.create_default_context(cafile=str(path)).cert_store_stats()["x509"]:
            return path.resolve()
        reason = "it has no certificate"
    except OSError as error:  # ssl.SSLError is one: a file that is no PEM
        reason = error.strerror or str(error)
    except ValueError as error:  # a name that no file can have
        reason = str(files.unusable(error, path))
    raise RefusedError(
        f"{named_in}: the CA bundle {path} cannot be used: {reason}\nname a PEM file with the authorities to trust"
    )
