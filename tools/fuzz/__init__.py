"""Feeds damaged files to everything in rayfl that reads one."""
