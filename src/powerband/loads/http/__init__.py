"""Users or arrivals that send HTTP/1.1 requests."""
