"""Readers and writers of file formats for data."""
