"""Many hosts: what is to be done, where, and what became of it."""
