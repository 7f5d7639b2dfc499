"""What is known of an image: its configuration, what was measured in it, and the report of its checks."""
