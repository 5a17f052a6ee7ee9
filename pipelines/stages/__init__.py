"""The stages of a run: each takes session, plan and log, and returns its result; see ``line``."""
