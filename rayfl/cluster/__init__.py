"""The engine's classes as Ray actors. The only room that imports ray."""
