"""Publishing: a validated image, with its evidence, to the registries a team uses."""
