"""Slow nodes and links, by jobs on two nodes each: disjoint pairs at once, then suspects with good nodes."""
