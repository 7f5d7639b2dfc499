"""Members of a tar of every kind that a layer may have."""

import io
import random
import struct
import tarfile
from typing import Any

from rdma_images.layers import seekable_layer

LARGE = random.Random(4).randbytes(seekable_layer.PIECE + 1000)
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)  # cap_net_raw, as ping has it
LONG = "usr/share/" + "/".join(["a-folder-with-a-long-name"] * 12) + "/file"


def member(name: str, type: bytes = tarfile.REGTYPE, content: bytes = b"", **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mtime = type, len(content), 1700000000
    for field, value in fields.items():
        setattr(info, field, value)
    return info


MEMBERS = [
    (member("./", tarfile.DIRTYPE, mode=0o755), b""),
    (member("tmp/", tarfile.DIRTYPE, mode=0o1777), b""),
    (member("usr/bin/su", content=b"su", mode=0o4755, uid=3, gid=50, uname="sys", gname="staff"), b"su"),
    (
        member(
            "usr/bin/ping",
            content=b"ping",
            pax_headers={
                "SCHILY.xattr.security.capability": CAPABILITY.decode("utf-8", "surrogateescape"),
                "SCHILY.xattr.user.note": "two\nlines",
                "mtime": "1700000000.123456789",
            },
        ),
        b"ping",
    ),
    (member("usr/lib/large.so", content=LARGE), LARGE),
    (member("usr/lib/large.so.1", tarfile.LNKTYPE, linkname="usr/lib/large.so"), b""),
    (member("usr/lib/link.so", tarfile.SYMTYPE, linkname="../lib/large.so", mode=0o777), b""),
    (member("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666), b""),
    (member("dev/loop0", tarfile.BLKTYPE, devmajor=7, gid=6), b""),
    (member("run/pipe", tarfile.FIFOTYPE, mode=0o600), b""),
    (member("etc/.wh.machine-id"), b""),
    (member("var/cache/.wh..wh..opq"), b""),
    (member(LONG, content=b"far down", mtime=0), b"far down"),
    (member("etc/\u00fcber", content=b"name", mtime=-1.5), b"name"),
]


def make_tar(*members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
