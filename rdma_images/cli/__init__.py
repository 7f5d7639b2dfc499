"""The command line."""

import gc
import sys


def start_quickly() -> None:
    """Let a start be short.

    Compiled modules are kept, as Python's own settings say: invoke turns that off, and every start would compile every
    module again, which is a third of a plan. Garbage is looked for less often: nearly all that a start makes is used to
    the end.
    """
    sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
    gc.set_threshold(50_000)


start_quickly()  # now, because `invoke` runs already, and imports the tasks' modules next
