"""Implements ``invoke init``: reads a repository without running any of it, then writes files."""
