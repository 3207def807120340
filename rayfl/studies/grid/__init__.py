"""Many runs of one scenario: the schema of a grid, the runs of its cells, and its tables."""
