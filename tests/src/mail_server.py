"""Takes mail on a loopback port and stores each message in a file before it answers."""

import asyncio
import os
import sys

from aiosmtpd.smtp import SMTP

folder, after = sys.argv[1:3]


class Handler:
    count = 0

    async def handle_DATA(self, server, session, envelope):
        Handler.count += 1
        name = f"{Handler.count:06}.eml"
        hidden = os.path.join(folder, "." + name)
        with open(hidden, "wb") as file:
            file.write(envelope.original_content)
        os.rename(hidden, os.path.join(folder, name))
        if after == "abort":
            server.transport.abort()
        elif after == "hang":
            await asyncio.Event().wait()
        return f"250 2.0.0 Ok: queued as {Handler.count:06}"


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(Handler(), hostname="mail.test", enable_SMTPUTF8=True),
        "127.0.0.1",
        0,
        backlog=1024,
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    # The starter holds the other end: when it is gone, so are we.
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)


asyncio.run(main())
