"""Differential privacy: noise, clipping, and the accounts of what was spent."""
