"""The plan of images to build, and of refusals with their reasons. Downloads nothing.

`planner` reads targets from `matrix`, completes each to a `candidate` with every version known,
and asks `rules` whether it may work; `nearest` proposes what would. `onto` plans how a fabric is
added to an existing image, `additions`, `local_packages` and `requirements_file` what a user adds.
"""
