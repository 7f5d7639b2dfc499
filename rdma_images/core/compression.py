"""The compressions of layers, as buildx is asked for them."""

from typing import Literal

from rdma_images.core.errors import RefusedError, suggestion

Compression = Literal["zstd", "gzip"]

# zstd needs OCI media types, and every layer in them: with Docker's, engines skip the layers' compression and the
# pushed image cannot be pulled ("number of layers and diffIDs don't match"). Level 3 is zstd's own default.
COMPRESSIONS: dict[Compression, str] = {
    "zstd": "compression=zstd,compression-level=3,force-compression=true,oci-mediatypes=true",
    "gzip": "compression=gzip,force-compression=true,oci-mediatypes=true",
}


def parse_compression(text: str) -> Compression:
    """Return the compression that an option names. Raises RefusedError."""
    if text not in COMPRESSIONS:
        raise RefusedError(f"--compression {text}: unknown\n{suggestion(text, COMPRESSIONS)}")
    return "gzip" if text == "gzip" else "zstd"
