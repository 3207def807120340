"""The engine's classes as Ray actors. Apart from `rayfl.service`, the only package that imports ray."""
