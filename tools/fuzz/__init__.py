"""Feeds damaged files to every reader in rayfl."""
