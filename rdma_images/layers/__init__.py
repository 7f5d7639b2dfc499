"""From wheels to layers: OCI blobs made once from the wheel files, for every image, base and engine."""
