"""Figures: their style, panels of curves, and the curves of a single run."""
