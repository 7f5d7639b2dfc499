"""Text that came out of an image, as a terminal, a page or an XML file may have it."""


def plain(text: str) -> str:
    r"""Return `text` with every character that does more than stand there written as an escape: \x1b, \n, \u202e."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
