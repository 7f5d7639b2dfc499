"""The inputs of an image: sources, mirrors, locks, verified downloads."""
