"""What a wheel was made of and by whom: statements, signatures, and what they are worth."""
