"""The lifecycle of a run: opened or reopened, followed, and ended."""
