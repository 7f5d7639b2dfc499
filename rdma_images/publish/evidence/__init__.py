"""The evidence about an image: its bill of materials with licences, and the vulnerabilities that a scanner found."""
