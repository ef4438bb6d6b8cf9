"""The kinds of load: HTTP, WebSocket, a JMeter plan, a program that drives itself. A folder holds all of one kind."""
