"""An HTTP server in which a resource grows with each request: `growing_server.py PORT WHAT`.

`memory`: 8 KB of each are kept; `threads`: each twentieth starts a thread that never ends; `descriptors`: each opens a
file that is never closed; `cache`: 64 KB for each of 400 keys, asked for by chance; `queue`: each holds the only slot
for 5 ms; `nothing`.
"""

import asyncio
import os
import random
import resource
import sys
import threading

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BYTES, A_THREAD = 8192, 20
KEYS, CACHED_BYTES = 400, 65536
FILES_MOST = 20_000  # many shells allow 1,024, which last for two seconds


class Server:
    def __init__(self, what):
        self.what = what
        self.kept = []
        self.cache = {}
        self.requests = 0
        self.slot = asyncio.Lock()

    def grow(self):
        self.requests += 1
        if self.what == "memory":
            self.kept.append(b"x" * (BYTES - 1) + bytes([self.requests % 256]))
        elif self.what == "cache":
            key = random.randrange(KEYS)
            if key not in self.cache:
                self.cache[key] = b"x" * CACHED_BYTES
        elif self.what == "threads" and self.requests % A_THREAD == 0:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        elif self.what == "descriptors":
            self.kept.append(os.open("/dev/null", os.O_RDONLY))

    async def serve(self, reader, writer):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.grow()
                if self.what == "queue":
                    async with self.slot:
                        await asyncio.sleep(0.005)
                writer.write(ANSWER)
                await asyncio.sleep(0.05)
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()


async def main(port, what):
    server = await asyncio.start_server(Server(what).serve, "127.0.0.1", port, backlog=256)
    await server.serve_forever()


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES_MOST), hard))
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
