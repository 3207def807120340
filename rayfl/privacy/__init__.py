"""Example-level and client-level differential privacy, with the noise sources and accounting that both use."""
