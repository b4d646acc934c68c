"""A link to HOST:PORT that is slow and fails: `bad_link.py HOST PORT ADDRESS DELAY_S STATE`.

Prints the port at ADDRESS that it listens on. Each piece comes DELAY_S later than it was sent. While the file STATE holds
`silent` nothing passes and nobody is told, as when packets are dropped; `cut` ends all connections at once.
"""

import asyncio, pathlib, sys

HOST, PORT, ADDRESS, DELAY_S, STATE = sys.argv[1:]
links = set()


def state():
    return pathlib.Path(STATE).read_text().strip()


async def pass_on(reader, writer):
    loop, queue = asyncio.get_running_loop(), asyncio.Queue(64)

    async def deliver():
        while piece := await queue.get():
            at, data = piece
            await asyncio.sleep(max(0.0, at - loop.time()))
            while state() == "silent":
                await asyncio.sleep(0.05)
            if data:
                writer.write(data)
                await writer.drain()
            else:
                writer.close()
                return

    delivering = asyncio.create_task(deliver())
    try:
        while data := await reader.read(16384):
            await queue.put((loop.time() + float(DELAY_S), data))
        await queue.put((loop.time() + float(DELAY_S), b""))
        await delivering
    except (OSError, asyncio.CancelledError):
        delivering.cancel()


async def link(reader, writer):
    far_reader, far_writer = await asyncio.open_connection(HOST, int(PORT))
    links.add(writer)
    links.add(far_writer)
    await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer), return_exceptions=True)


async def main():
    server = await asyncio.start_server(link, ADDRESS, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while True:
        await asyncio.sleep(0.05)
        if state() == "cut":
            for writer in links:
                writer.transport.abort()
            links.clear()


asyncio.run(main())
