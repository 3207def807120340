"""Measures rounds of other simulators beside rayfl's, in one run on this machine."""
