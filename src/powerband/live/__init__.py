"""The live page: follows run directories and serves their state to browsers. It starts and changes nothing."""
