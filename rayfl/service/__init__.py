"""Runs that belong to a cluster: submitted, followed from any program that is connected to it, and stopped."""
