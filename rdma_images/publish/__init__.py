"""Publishing: a validated image, with its evidence, to the registries a team uses.

- To publish: `publish_images` asks the `gate`, `send` brings one image to one registry of a kind
  in `registry_kinds`, `push` moves its layers, `attach` and `signing` add what `evidence` has and
  signatures, and `tags` moves the short tags at the end.
- To check what others published: `verify`, by `attachment_checks` and `cosign`.
- Other forms: `stargz` converts an image and sends it, `platform_index` joins its platforms.
"""
