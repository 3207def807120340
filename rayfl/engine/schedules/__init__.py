"""Schedules, which run a phase's rounds on the hosts; derive from `Schedule` to write your own."""
