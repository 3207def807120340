"""Checks and times rayfl on one GPU of this machine."""
