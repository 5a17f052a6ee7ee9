"""What a bare Windows needs before a session with it is possible, and what outlives a session."""
