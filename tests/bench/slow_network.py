"""A TCP proxy that makes loopback slow: ``python slow_network.py PORT MILLISECONDS``.

Prints its own port. Each direction delays by half of the round trip. Ends with its input.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time


async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay: float) -> None:
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

    async def deliver() -> None:
        while True:
            when, data = await waiting.get()
            await asyncio.sleep(max(0.0, when - time.monotonic()))
            if not data:
                sink.close()
                return
            sink.write(data)
            await sink.drain()

    delivery = asyncio.create_task(deliver())
    try:
        while True:
            data = await source.read(65536)
            await waiting.put((time.monotonic() + delay, data))
            if not data:
                break
        await delivery
    except OSError:
        delivery.cancel()
        sink.close()


async def main(port: int, milliseconds: float) -> None:
    delay = milliseconds / 2000

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, far_writer, delay), carry(far_reader, writer, delay))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set_result, None)

    threading.Thread(target=wait, daemon=True).start()
    await ended
    os._exit(0)  # with connections open, there is nothing to tidy up


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
