"""The live page: follows run directories and serves what it finds there to browsers. It starts and changes nothing."""
