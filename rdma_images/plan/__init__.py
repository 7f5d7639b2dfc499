"""The plan of images to build, and of refusals with their reasons. Downloads nothing."""
