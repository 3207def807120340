"""Many runs of one scenario: grids, their runs, progress and tables."""
