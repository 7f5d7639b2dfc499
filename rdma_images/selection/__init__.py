"""Choose what a command is about: the project, and the images that its options name."""
