"""A Sigstore for tests: a certificate authority, both logs, and bundles from them."""

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

IDENTITY = "https://github.com/team/images/.github/workflows/image.yml@refs/heads/main"
ISSUER = "https://token.actions.githubusercontent.com"
_FULCIO = "1.3.6.1.4.1.57264.1"
_ORIGIN = "rekor.example"
_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_LIFE = timedelta(minutes=10)  # of a signer's certificate


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _sign(key: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    return key.sign(content, ec.ECDSA(hashes.SHA256()))


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public(key)).digest()


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _canonical(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _opaque(content: bytes) -> bytes:
    return struct.pack("!H", len(content)) + content


@dataclass
class Sigstore:
    """The keys of the three services."""

    authority_key: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    certificate_log: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    signature_log: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    started: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __post_init__(self) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority of a test")])
        public = self.authority_key.public_key()
        self.authority = (
            x509.CertificateBuilder(name, name, public, x509.random_serial_number())
            .not_valid_before(self.started)
            .not_valid_after(self.started + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(True, 0), True)
            .add_extension(_usage(signs_certificates=True), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
            .sign(self.authority_key, hashes.SHA256())
        )

    def write_root(self, path: Path) -> Path:
        """Write the trusted root of these services."""
        start = {"start": self.started.isoformat()}

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            public = {"rawBytes": _text(_public(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": start}
            log_id = {"keyId": _text(_key_id(key))}
            return {"baseUrl": "https://log.example", "hashAlgorithm": "SHA2_256", "publicKey": public, "logId": log_id}

        certificate = {"rawBytes": _text(self.authority.public_bytes(serialization.Encoding.DER))}
        authority = {
            "subject": {"organization": "a test", "commonName": "an authority of a test"},
            "uri": "https://authority.example",
            "certChain": {"certificates": [certificate]},
            "validFor": start,
        }
        root = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.signature_log)],
            "certificateAuthorities": [authority],
            "ctlogs": [log(self.certificate_log)],
        }
        path.write_text(json.dumps(root))
        return path

    def bundle(
        self,
        statement: bytes,
        identity: str = IDENTITY,
        issuer: str = ISSUER,
        source: str = "https://github.com/team/images",
        late: timedelta = timedelta(minutes=1),
    ) -> bytes:
        """Return a bundle of a statement, signed `late` after its certificate was issued."""
        issued = self.started + timedelta(days=30)
        signer = _key()
        certificate = self._certificate(signer, issued, identity, issuer, source)
        kind = "application/vnd.in-toto+json"
        signature = _text(_sign(signer, b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(statement), statement)))
        pem = _text(certificate.public_bytes(serialization.Encoding.PEM))
        body = {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(statement).hexdigest()},
                "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(statement).hexdigest()},
                "signatures": [{"signature": signature, "verifier": pem}],
            },
        }
        material = {
            "certificate": {"rawBytes": _text(certificate.public_bytes(serialization.Encoding.DER))},
            "tlogEntries": [self._entry(_canonical(body), issued + late)],
        }
        envelope = {"payload": _text(statement), "payloadType": kind, "signatures": [{"sig": signature}]}
        media_type = "application/vnd.dev.sigstore.bundle.v0.3+json"
        bundle = {"mediaType": media_type, "verificationMaterial": material, "dsseEnvelope": envelope}
        return json.dumps(bundle).encode()

    def _certificate(
        self, signer: ec.EllipticCurvePrivateKey, issued: datetime, identity: str, issuer: str, source: str
    ) -> x509.Certificate:
        texts = {f"{_FULCIO}.8": issuer, f"{_FULCIO}.12": source}
        builder = (
            x509.CertificateBuilder(self.authority.subject, x509.Name([]), signer.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(issued)
            .not_valid_after(issued + _LIFE)
            .add_extension(_usage(signs_certificates=False), True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority_key.public_key()), False)
        )
        for oid, text in texts.items():
            der = b"\x0c" + (bytes([len(text)]) if len(text) < 128 else bytes([0x81, len(text)])) + text.encode()
            builder = builder.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), der), False)
        bare = builder.sign(self.authority_key, hashes.SHA256()).tbs_certificate_bytes
        milliseconds = int(issued.timestamp() * 1000)
        entry = _key_id(self.authority_key) + len(bare).to_bytes(3) + bare
        signed = _sign(self.certificate_log, struct.pack("!BBQH", 0, 0, milliseconds, 1) + entry + _opaque(b""))
        sct = b"\0" + _key_id(self.certificate_log) + struct.pack("!QH", milliseconds, 0) + b"\4\3" + _opaque(signed)
        listed = _opaque(_opaque(sct))
        extension = x509.UnrecognizedExtension(_SCT_LIST, b"\x04" + bytes([len(listed)]) + listed)
        return builder.add_extension(extension, False).sign(self.authority_key, hashes.SHA256())

    def _entry(self, body: bytes, time: datetime) -> dict[str, Any]:
        """Return the entry of a log that has this one alone."""
        log_id, seconds = _key_id(self.signature_log), int(time.timestamp())
        root = hashlib.sha256(b"\0" + body).digest()
        note = f"{_ORIGIN}\n1\n{_text(root)}\n"
        checkpoint = f"{note}\n— {_ORIGIN} {_text(log_id[:4] + _sign(self.signature_log, note.encode()))}\n"
        promise = {"body": _text(body), "integratedTime": seconds, "logID": log_id.hex(), "logIndex": 0}
        proof = {"logIndex": "0", "treeSize": "1", "rootHash": _text(root), "hashes": []}
        return {
            "logIndex": "0",
            "logId": {"keyId": _text(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(seconds),
            "inclusionPromise": {"signedEntryTimestamp": _text(_sign(self.signature_log, _canonical(promise)))},
            "inclusionProof": proof | {"checkpoint": {"envelope": checkpoint}},
            "canonicalizedBody": _text(body),
        }
