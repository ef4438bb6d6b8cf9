"""What the terminal shows: progress, the answer, the result of a load."""
