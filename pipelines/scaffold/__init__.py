"""What ``invoke init`` does: look at a repository without running any of it, then write files."""
