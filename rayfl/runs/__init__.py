"""Runs: prepared, launched or resumed, followed to their end, and recorded in a folder."""
