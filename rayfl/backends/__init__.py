"""Where a run's hosts, server and scheduler live: in this process (`inline`), or as actors on a Ray cluster (`ray`)."""
