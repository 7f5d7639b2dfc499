"""Make image layers from wheel files, once for every image, base and engine."""
