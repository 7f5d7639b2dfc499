"""Images as they failed in the field, and good images that must not be blamed."""
