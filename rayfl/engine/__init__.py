"""Host, Server and Scheduler as plain classes, with exact sums, assignment, evaluation and events.

The folders hold what a run will do (`plan`), executors, schedules, and the state between rounds (`state`).
"""
