"""Generated bad input: edits of texts, and limits of time and memory for reading it."""

import resource
import time
from collections.abc import Callable
from contextlib import suppress

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rdma_images.core.errors import RdmaImagesError

CASE_SECONDS, CASE_MEGABYTES = 5, 500  # the most that a case may take
ODD = (
    *("", "\0", "\x1b[2J", "\ud800", "\u2028", "[" * 500, "{" * 500, "9" * 5000),
    *("[" * 50_000, '{"a":' * 50_000, "9999-12-31"),
    *("*a", "&a [*a, *a]", "- ", ": ", "\t"),
    *("!!x ", "NaN", "~", "1e999", "../..", "-x", "--output=x"),
    *("file:///etc/passwd", "m" * 300, "2.15.0", "|", "'", '"'),
)
words = st.sampled_from(ODD) | st.text(max_size=20)
values = st.recursive(words, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4))


@st.composite
def edited(draw: st.DrawFn, text: str) -> str:
    """Return `text` with a few of its stretches replaced by something odd."""
    for _ in range(draw(st.integers(1, 3))):
        start, long = draw(st.integers(0, len(text))), draw(st.integers(0, 12))
        text = text[:start] + draw(words) + text[start + long :]
    return text


@st.composite
def edited_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Return `content` with a few of its stretches replaced, and sometimes cut off."""
    for _ in range(draw(st.integers(1, 4))):
        start, long = draw(st.integers(0, len(content))), draw(st.integers(0, 16))
        odd = draw(st.binary(max_size=8) | words.map(lambda text: text.encode(errors="surrogatepass")))
        content = content[:start] + odd + content[start + long :]
    return content[: draw(st.integers(0, len(content)))] if draw(st.integers(0, 9)) == 0 else content


def bounded(act: Callable[..., object], case: object) -> None:
    """Do `act`: it may refuse, and may not take long, take much, or fail otherwise."""
    begun, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(RdmaImagesError):
        act(case)
    assert time.process_time() - begun < CASE_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < CASE_MEGABYTES


def generated(strategy: st.SearchStrategy[object], act: Callable[..., object], count: int) -> None:
    """Run `count` cases, the same ones in every run."""

    @seed(12)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def run(case: object) -> None:
        bounded(act, case)

    run()
