"""What happens inside a visit: the client an algorithm sees, and its local training."""
