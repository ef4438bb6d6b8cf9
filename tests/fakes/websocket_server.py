"""A scripted WebSocket server for tests: `websocket_server.py PORT HOW`. Takes the small frames of a load, no more.

`count` answers each message with how many it has received; `miscount` says one less for every tenth; `drop:N` closes a
connection at its Nth message, with code 1011; `first:N` answers the messages of the first N connections alone;
`refuse` answers the opening handshake with 403; `broadcast` sends each message to everybody. GET /health is answered in
each of them.
"""

import asyncio
import base64
import hashlib
import sys

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class Server:
    def __init__(self, how):
        self.how, _, number = how.partition(":")
        self.drop_at = int(number or 0) if self.how == "drop" else 0
        self.answered = int(number or 0) if self.how == "first" else None
        self.joined = 0
        self.received = 0
        self.everybody = set()

    async def serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            key = next((line.split(":", 1)[1].strip() for line in head.splitlines() if is_key(line)), None)
            if key is None or self.how == "refuse":
                status = "403 Forbidden" if key else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                return
            accept = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
            writer.write(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
            )
            self.everybody.add(writer)
            await self.converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.everybody.discard(writer)
            writer.close()

    async def converse(self, reader, writer):
        mine = 0
        self.joined += 1
        heard = self.answered is None or self.joined <= self.answered
        while True:
            opcode, payload = await frame(reader)
            if opcode == CLOSE:
                send(writer, CLOSE, payload)
                return
            if opcode == PING:
                send(writer, PONG, payload)
            if opcode != TEXT or not heard:
                continue
            mine += 1
            self.received += 1
            if mine == self.drop_at:
                send(writer, CLOSE, (1011).to_bytes(2, "big"))
                await writer.drain()
                return
            if self.how == "broadcast":
                for other in self.everybody:
                    send(other, TEXT, payload)
            else:
                told = self.received - (self.received // 10 if self.how == "miscount" else 0)
                send(writer, TEXT, f'{{"worker":"w1","count":{told}}}'.encode())


def is_key(line):
    return line.lower().startswith("sec-websocket-key:")


async def frame(reader):
    """The opcode and payload of the next frame, which must be complete, masked and shorter than 64 KiB."""
    first, second = await reader.readexactly(2)
    length = second & 0x7F
    if length == 126:
        length = int.from_bytes(await reader.readexactly(2), "big")
    mask = await reader.readexactly(4)
    payload = await reader.readexactly(length)
    return first & 0x0F, bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


def send(writer, opcode, payload):
    writer.write(bytes((0x80 | opcode, len(payload))) + payload)


async def main(port, how):
    server = await asyncio.start_server(Server(how).serve, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
