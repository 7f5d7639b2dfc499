"""Licences of packages as SPDX expressions, from wheels and Debian's copyright files.

What has no SPDX name gets a LicenseRef that says where the text is; what names no licence gets an empty expression.
"""

import re

from rdma_images.core.spdx import conjunction, license_ref, normalize
from rdma_images.inspection.measurements import DebianContents, WheelContents

NVIDIA = "LicenseRef-NVIDIA-Proprietary"  # as NVIDIA's wheels themselves write it

# The field License of wheels is free text. Source: the wheels that the locks name.
_FIELDS = {
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd-3": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "mit license": "MIT",
    "the mit license": "MIT",
    "the mit license (mit)": "MIT",
    "mpl 2.0": "MPL-2.0",
    "mpl-2.0": "MPL-2.0",
    "nvidia proprietary software": NVIDIA,
    "psf": "PSF-2.0",
}
# Source: pypi's trove classifiers whose licence is one of SPDX's.
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "LicenseRef-BSD",
    "Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "GNU Affero General Public License v3": "AGPL-3.0-only",
    "GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
}
# Short names of Debian's copyright format that SPDX calls otherwise. Source: its section 7.1, and the files themselves.
_DEBIAN = {
    "apache-2": "Apache-2.0",
    "artistic": "Artistic-1.0-Perl",
    "artistic-2": "Artistic-2.0",
    "bsl": "BSL-1.0",
    "cc0": "CC0-1.0",
    "expat": "MIT",
    "mit/x11": "MIT",
    "psf-2": "PSF-2.0",
    "public-domain": "LicenseRef-public-domain",
    "x11": "X11",
    "zlib": "Zlib",
}
_GNU = re.compile(r"(?P<name>[AL]?GPL|GFDL)-(?P<version>\d(?:\.\d)?)(?:\.0)?(?P<later>\+|-or-later)?(?:-only)?", re.I)
_WORDS = 8  # the longest name of a licence with an exception; a longer text is the licence itself


def wheel_license(contents: WheelContents) -> str:
    """Return a wheel's SPDX expression, by its expression, licence or classifiers."""
    if contents.license and (expression := normalize(contents.license)):
        return expression
    field = " ".join(contents.license_field.split()).lower()
    if field and (expression := _FIELDS.get(field) or normalize(contents.license_field)):
        return expression
    names = [line.rpartition(" :: ")[2] for line in contents.classifiers]
    if expression := conjunction(_CLASSIFIERS[name] for name in names if name in _CLASSIFIERS):
        return expression
    return license_ref(contents.license_field) if contents.license_field else ""


def debian_license(contents: DebianContents) -> str:
    """Return a Debian package's SPDX expression: all licences of its copyright file."""
    return conjunction(_debian(name) for name in contents.licenses)


def _debian(name: str) -> str:
    """Return the expression of one short name, such as "GPL-2+ or MIT"."""
    if name.startswith("/"):
        return license_ref(f"common-{name[1:]}")
    words = re.split(r"(,?\s+(?:and/or|and|or)\s+|,\s*)", name)
    if any(len(word.split()) > 1 for word in words[::2]):  # an exception, or the text of a licence itself
        return license_ref(name if len(name.split()) <= _WORDS else "text")
    operators = {"and": "AND", "or": "OR", "and/or": "OR", ",": "AND"}
    for number, word in enumerate(words):
        words[number] = operators[word.strip(",").strip() or ","] if number % 2 else _debian_name(word)
    return normalize(" ".join(words)) or license_ref(name)


def _debian_name(word: str) -> str:
    if match := _GNU.fullmatch(word.strip()):
        version = match["version"] if "." in match["version"] else f"{match['version']}.0"
        return f"{match['name'].upper()}-{version}-{'or-later' if match['later'] else 'only'}"
    name = _DEBIAN.get(word.strip().lower(), word.strip())
    return normalize(name) or license_ref(name)
