"""Digests of everything besides the scenario that a result depends on: user code, data, rayfl and its libraries."""
