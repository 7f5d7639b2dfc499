"""For CI: which jobs there are, on which machines, with what in common; and how its workflow installs this tool."""
