"""Figures and tables of finished runs and grids, for papers: `rayfl plot`, `rayfl compare` and `rayfl report`."""
