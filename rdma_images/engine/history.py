"""What BuildKit itself recorded of a build: its provenance, read from the builder's history.

BuildKit keeps it for every build that succeeded, also where none is put into the image, and hands it out over its own
gRPC services; buildx has a verb for that from 0.21 only, and puts it into its metadata file from 0.14.
"""

import socket
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image_build import Provenance
from rdma_images.core.plain import decode_json
from rdma_images.engine import docker_command
from rdma_images.engine.docker_command import Engine

PREDICATE_TYPE = "in-toto.io/predicate-type"  # the annotation by which BuildKit tells its attestations apart
SLSA = "https://slsa.dev/provenance/"
TIMEOUT = 30  # seconds for an answer
MAX_MESSAGE_BYTES = 64 << 20  # bytes of one message; a provenance with every step of a graph has 0.3 MB
# The messages here are from control.proto of BuildKit (since 0.11) and content.proto of containerd, and so are their
# field numbers. What is not listed is ignored, as the protocol wants; a map is the repeated entries on the wire.
_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _FIELD.TYPE_STRING,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
}
_PACKAGE = "rdma_images"

# message -> field -> (number, type), "[]" where it is repeated.
_MESSAGES = {
    "HistoryRequest": {"Ref": (2, "string"), "EarlyExit": (3, "bool")},
    "HistoryEvent": {"record": (2, "Record")},
    "Record": {
        "CompletedAt": (7, "Timestamp"),
        "Result": (10, "Result"),
        "Results": (11, "ResultOfPlatform[]"),
        "numCachedSteps": (15, "int32"),
        "numTotalSteps": (16, "int32"),
    },
    "Timestamp": {"seconds": (1, "int64"), "nanos": (2, "int64")},
    "ResultOfPlatform": {"value": (2, "Result")},
    "Result": {"Attestations": (2, "Descriptor[]"), "Results": (3, "NumberedDescriptor[]")},
    "NumberedDescriptor": {"value": (2, "Descriptor")},
    "Descriptor": {"digest": (2, "string"), "annotations": (5, "Annotation[]")},
    "Annotation": {"key": (1, "string"), "value": (2, "string")},
    "ContentRequest": {"digest": (1, "string")},
    "ContentResponse": {"data": (2, "bytes")},
}


def provenances(
    engine: Engine, digests: Collection[str], builder: str = "", builds: Collection[str] = ("",)
) -> dict[str, Provenance]:
    """Return what the newest build with each of these results left in the builder's history, by the result's digest.

    Args:
        engine: What built.
        digests: The results; one that no build of the history has is not in the answer.
        builder: One of buildx's; without it the engine's own is asked.
        builds: The builds to read, by the references that buildx gave them; by default all, which may be thousands.

    Raises:
        RdmaImagesError: The builder cannot be asked, as with a buildx before 0.13.
    """
    complaints: list[str] = []
    try:
        with _channel(engine, builder, complaints) as channel:
            newest: dict[str, tuple[Any, Any]] = {}
            records = [record for build in builds for record in _records(channel, build)]
            for record in sorted(records, key=lambda item: (item.CompletedAt.seconds, item.CompletedAt.nanos)):
                newest |= {digest: (record, item) for digest, item in _attestations(record) if digest in digests}
            return {
                digest: Provenance(
                    digest=digest,
                    predicate_type=_predicate_type(item),
                    predicate=decode_json(_content(channel, item.digest)),
                    steps=record.numTotalSteps,
                    cached=record.numCachedSteps,
                )
                for digest, (record, item) in newest.items()
            }
    except (grpc.RpcError, DecodeError, ValueError) as error:
        complaint = complaints or [error.details() if isinstance(error, grpc.Call) else str(error)]
        raise RdmaImagesError(
            f"BuildKit's history cannot be read: {complaint[-1]}\n"
            "see with `docker buildx inspect` that the builder answers, and that buildx is 0.13 or later"
        ) from None


@contextmanager
def _channel(engine: Engine, builder: str, complaints: list[str]) -> Iterator[grpc.Channel]:
    """Connect to the builder, wherever it is: buildx dials it and passes bytes on. Its errors go to `complaints`."""
    dial = ["buildx", "dial-stdio", *(["--builder", builder] if builder else [])]
    with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder, socket.socket(socket.AF_UNIX) as listener:
        address = str(Path(folder) / "buildkit")
        listener.bind(address)
        listener.listen()
        listener.settimeout(TIMEOUT)

        def serve() -> None:
            try:
                accepted, _ = listener.accept()
            except OSError:  # nobody came
                return
            with accepted:  # the connection itself is the program's standard input and output
                ends = accepted.fileno()
                result = docker_command.run(engine, *dial, stdin=ends, stdout=ends)
                complaints.extend(result.stderr.strip().splitlines())

        dialling = Thread(target=serve, daemon=True)
        dialling.start()
        try:
            with grpc.insecure_channel(
                f"unix:{address}", options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
            ) as channel:
                yield channel
        finally:
            dialling.join()


def _records(channel: grpc.Channel, build: str) -> Iterator[Any]:
    """Yield the builds that ended, of those that the builder still knows: one by its reference, or all for ""."""
    listen = _method(channel, "/moby.buildkit.v1.Control/ListenBuildHistory", HistoryEvent)
    for event in listen(HistoryRequest(EarlyExit=True, Ref=build), timeout=TIMEOUT):
        yield event.record


def _content(channel: grpc.Channel, digest: str) -> bytes:
    """Return a file of the builder's history."""
    read_content = _method(channel, "/containerd.services.content.v1.Content/Read", ContentResponse)
    return b"".join(part.data for part in read_content(ContentRequest(digest=digest), timeout=TIMEOUT))


def _method(channel: grpc.Channel, name: str, response_type: type[Message]) -> Callable[..., Iterator[Any]]:
    return channel.unary_stream(
        name,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response_type.FromString,
    )


def _attestations(record: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a build made, and the descriptor of its SLSA provenance: one pair a platform."""
    for result in (record.Result, *(entry.value for entry in record.Results)):
        for build_result in result.Results:
            for attestation in result.Attestations:
                if _predicate_type(attestation).startswith(SLSA):
                    yield build_result.value.digest, attestation


def _predicate_type(descriptor: Any) -> str:
    return next((entry.value for entry in descriptor.annotations if entry.key == PREDICATE_TYPE), "")


def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="rdma_images/buildkit.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            element = kind.removesuffix("[]")
            added = message.field.add(name=field, number=number)
            added.label = _FIELD.LABEL_REPEATED if element != kind else _FIELD.LABEL_OPTIONAL
            added.type = _TYPES.get(element, _FIELD.TYPE_MESSAGE)
            if element not in _TYPES:
                added.type_name = f".{_PACKAGE}.{element}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_MESSAGE_CLASSES = _classes()
HistoryRequest, HistoryEvent = _MESSAGE_CLASSES["HistoryRequest"], _MESSAGE_CLASSES["HistoryEvent"]
ContentRequest, ContentResponse = _MESSAGE_CLASSES["ContentRequest"], _MESSAGE_CLASSES["ContentResponse"]
