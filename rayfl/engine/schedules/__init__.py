"""Schedules, which run a phase's rounds on the hosts: one per file; derive from `Schedule` to write your own."""
