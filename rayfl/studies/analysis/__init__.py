"""Analyses of finished runs, on why a start helps, and theory from the papers next to simulations of it."""
