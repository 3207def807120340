"""Shows that a refactoring changed nothing: two commits give the same words, names, scenarios and bits."""
