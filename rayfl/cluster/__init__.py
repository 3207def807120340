"""The engine's classes as Ray actors. The only package that imports ray."""
