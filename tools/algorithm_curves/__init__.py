"""python -m tools.algorithm_curves: a learning curve of every algorithm, for its page in the reference."""
