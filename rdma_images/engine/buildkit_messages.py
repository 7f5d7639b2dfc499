"""The few messages of BuildKit's and containerd's services that are asked here, with the fields that are read.

From control.proto of BuildKit (since 0.11) and content.proto of containerd: field numbers are theirs. What is not
listed is ignored, as the protocol wants; a map is written as the repeated entries that it is on the wire.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

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
