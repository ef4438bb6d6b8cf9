"""Users who each hold a WebSocket."""
