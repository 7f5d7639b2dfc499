"""The OCI distribution protocol: references, credentials, one registry over HTTP."""
