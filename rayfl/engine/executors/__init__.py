"""How a host carries out what algorithms request of its clients."""
