"""The vulnerabilities of an image: read from a scanner's report, and judged by a policy."""
