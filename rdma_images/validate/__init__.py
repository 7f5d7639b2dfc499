"""Validate an image: measure what is in it, compare that with what must hold, and write the report."""
