"""What is done, in order: each stage takes the work so far and leaves its part of the record."""
