"""Publishing: a validated image, with its evidence, to the registries a team uses.

- To publish: `publish_images` asks the `gate`, `send` brings one image to one registry of a kind
  in `kinds`, `push` moves its layers, `attach` and `signing` add evidence and signatures, and
  `tags` moves the short tags at the end.
- To check what others published: `verify`, by `attachment_checks`, `cosign`, `sigstore_bundles`
  and `origin_policy`; `reproduce` builds it again.
- Other forms: `soci` and `stargz` convert it, `multi_platform_index` joins its platforms.
"""
