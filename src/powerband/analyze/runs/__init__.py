"""Two runs, or two revisions of a server, compared setting by setting."""
