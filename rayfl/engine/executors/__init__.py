"""Executors, which compute the requests that algorithms make of a host's clients."""
