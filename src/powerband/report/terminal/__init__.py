"""Terminal output: progress, the answer, the result of a load."""
