"""An HTTP server in which something grows with each request: `growing_server.py PORT WHAT`.

`memory`: 8 KB of each are kept; `threads`: each twentieth starts a thread that never ends; `descriptors`: each opens a
file that is never closed; `cache`: as `memory`, up to 20 MB; `nothing`.
"""

import asyncio
import os
import sys
import threading

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BYTES, CACHE_BYTES, A_THREAD = 8192, 20_000_000, 20


class Server:
    def __init__(self, what):
        self.what = what
        self.kept = []
        self.requests = 0

    def grow(self):
        self.requests += 1
        if self.what == "memory" or (self.what == "cache" and len(self.kept) * BYTES < CACHE_BYTES):
            self.kept.append(b"x" * (BYTES - 1) + bytes([self.requests % 256]))
        elif self.what == "threads" and self.requests % A_THREAD == 0:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        elif self.what == "descriptors":
            self.kept.append(os.open("/dev/null", os.O_RDONLY))

    async def serve(self, reader, writer):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.grow()
                writer.write(ANSWER)
                await asyncio.sleep(0.01)
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()


async def main(port, what):
    server = await asyncio.start_server(Server(what).serve, "127.0.0.1", port, backlog=256)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
