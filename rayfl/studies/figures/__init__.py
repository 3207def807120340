"""Figures and tables of finished runs and grids, for papers: `rayfl.plot`, `rayfl.compare` and the page of a report."""
