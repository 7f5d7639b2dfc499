"""The model of an image: its configuration, the measurements in it, and the report of its checks."""
