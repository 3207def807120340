"""`make bench`: what rayfl's speed, hops, start and memory are, measured against what they must be."""
