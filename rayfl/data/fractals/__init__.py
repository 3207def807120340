"""Fractal images of iterated function systems, rendered on demand."""
