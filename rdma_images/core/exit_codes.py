"""The exit codes of every command; docs/reference/exit-codes.md lists the same."""

OK = 0
FAILED = 1  # the answer is no, or the work failed: a check, a build, a network
REFUSED = 2  # used wrongly, refused, or a file that cannot be read
UNKNOWN = 3  # there is no answer: the log, the report or the result does not show it
SIGNAL = 128  # plus the signal's number: stopped (130 for Ctrl-C, 141 where the reader of the output has gone)
