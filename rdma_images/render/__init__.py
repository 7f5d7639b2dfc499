"""From an image to its Dockerfile, its labels and the bake file."""
