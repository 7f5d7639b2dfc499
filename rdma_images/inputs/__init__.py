"""The inputs of an image: sources, mirrors, locks, verified downloads.

- What a command is about: `project` has the files, `target_options` the images that its options name.
- What an image is made of: `sources` lists it, with `mirrors` in place of addresses.
- What is locked: `lock` (Python), for which `resolve` and `solve` ask `index_queries`, and `pins`; `locked_image` is an
  image with its locks.
- Whether it can be had, or a stand-in: `availability` asks all addresses before a build, with `reachable`.
- How it comes: `fetch` brings all sources, each with `download` into `download_store`.
"""
