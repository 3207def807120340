"""Shared parts of the command lines: options, lists and exit status."""
