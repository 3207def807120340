"""`rayfl doctor`: checks a machine's readiness for rayfl, one file per group of checks."""
