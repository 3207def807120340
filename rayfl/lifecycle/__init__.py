"""A run from its opening to its end, new or reopened."""
