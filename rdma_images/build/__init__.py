"""From a Dockerfile and its inputs to an image in an engine."""
