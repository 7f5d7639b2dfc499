"""Publishing: a validated image, with its proof, to the registries a team uses."""
