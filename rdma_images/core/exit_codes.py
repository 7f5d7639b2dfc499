"""The exit codes of every command; docs/reference/exit-codes.md lists the same."""

OK = 0
FAILED = 1  # what was asked is not so, or failed: a check, a build, a network
REFUSED = 2  # used wrongly, refused, or a file that cannot be read
UNKNOWN = 3  # it cannot be said: the log, the report or the result does not show it
SIGNAL = 128  # plus the signal's number: stopped (130 for Ctrl-C, 141 where the reader of the output has gone)
