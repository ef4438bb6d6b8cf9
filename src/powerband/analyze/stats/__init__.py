"""Statistics and queueing theory as pure functions; each names its source."""
