"""The initial model: weights from a file, a run, a library, or a scenario that is run first."""
