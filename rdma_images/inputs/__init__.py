"""Where the bytes of an image come from: sources, mirrors, locks, verified downloads."""
