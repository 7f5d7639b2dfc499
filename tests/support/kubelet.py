"""What a kubelet makes of the words of a container's command and variables."""

import re
from collections.abc import Mapping


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return a word with $ for $$, and the value of a variable of the container for $(NAME).

    As in kubernetes/kubernetes, third_party/forked/golang/expansion.
    """

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match["name"], match[0])

    return re.sub(r"\$\$|\$\((?P<name>[^)]*)\)", value, text)
