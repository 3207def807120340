"""`make bench`: measures speed, hops, start-up and memory against their targets."""
