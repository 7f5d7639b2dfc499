"""The vulnerabilities of an image: read from a scanner's report or from advisories, and judged by a policy."""
