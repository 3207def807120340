"""Figures and tables of finished runs and grids, for papers: `rayfl plot` and `rayfl compare`."""
