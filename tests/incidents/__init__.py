"""Incidents: images as they went wrong in the field, and good images of other makers that must not be blamed."""
