"""Debian, bootstrapped from its signed archive: the same bytes for one state of the archive."""
