"""Debian from its signed archive: packages unpacked into folders, and root file systems."""
