"""The verbs providers that the libibverbs of an image opens."""

import re
from pathlib import PurePosixPath

from rdma_images.inspection.inspection import base_name
from rdma_images.inspection.measurements import Files, Libraries

PROVIDER = re.compile(r"lib(\w+)-rdmav(\d+)\.so")  # of libibverbs: the driver's name, and the ABI
VERBS = "libibverbs.so.1"


def lib_folder(path: str) -> str:
    """Return the folder of a file, as it is called where /lib is a link into /usr."""
    folder = str(PurePosixPath(path).parent)
    return f"/usr{folder}" if folder.startswith("/lib") else folder


def search_words(libraries: Libraries) -> set[str]:
    """Return where the loader's libibverbs, or else any, looks for providers."""
    names_by_library = libraries.verbs_looks_for
    in_use = names_by_library.get(libraries.resolved[VERBS].file)
    return set(in_use or (word for words in names_by_library.values() for word in words))


def provider_folders(libraries: Libraries) -> set[str]:
    """Return the folders in which libibverbs opens providers.

    Its own, then where the loader finds libibverbs itself.
    """
    folders = {lib_folder(word) for word in search_words(libraries) if "/lib%s-rdmav" in word}
    file = libraries.resolved[VERBS].file
    return folders | ({lib_folder(file)} if folders and file else set())


def provider_suffixes(libraries: Libraries) -> set[str]:
    """Return the endings of the provider files that libibverbs opens, such as "-rdmav34.so"."""
    return {word.rpartition("%s")[2] for word in search_words(libraries) if "-rdmav" in word}


def opened_providers(files: Files, libraries: Libraries) -> dict[str, str]:
    """Return the driver of each verbs provider that libibverbs opens, by the provider's path."""
    folders, endings = provider_folders(libraries), tuple(provider_suffixes(libraries))
    drivers = {path: m.group(1) for path in files.library_files if (m := PROVIDER.fullmatch(base_name(path)))}
    drivers = {path: driver for path, driver in drivers.items() if not endings or path.endswith(endings)}
    return {path: driver for path, driver in drivers.items() if not folders or lib_folder(path) in folders}
