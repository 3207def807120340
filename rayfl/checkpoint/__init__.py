"""Checkpoints: how runs write and read them, and what may change when a run resumes."""
