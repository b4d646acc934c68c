"""An sshd that lets in and stops at one stage of what becomes an agent: `hanging_sshd.py STAGE KEY.pub`.

Prints its port and host key; a line is added to KEY.pub.reached whenever somebody comes to that stage.
"""

import asyncio, json, re, sys

import asyncssh

HOST = "127.0.0.9"
STAGES = "silent", "no command", "garbage", "no newline", "no unpacking", "no hello"


def sign_in(command):
    """What the answers to a boot line begin with."""
    return re.search(r"milabench-boot-[0-9a-f]{16}", command)[0]


async def serve(stage, key):
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    if stage == "silent":
        server = await asyncio.start_server(lambda _, writer: reached() or held.append(writer), HOST, 0)
        port = server.sockets[0].getsockname()[1]
    else:
        listening = {"server_host_keys": [host_key], "authorized_client_keys": key, "encoding": None}
        how = {"server_factory": Deaf} if stage == "no command" else {"process_factory": shell(stage)}
        server = await asyncssh.listen(HOST, 0, **how, **listening)
        port = server.get_port()
    print(json.dumps({"port": port, "key": host_key.export_public_key().decode()}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


held = []


def reached():
    with open(sys.argv[2] + ".reached", "a") as file:
        file.write("reached\n")


class Deaf(asyncssh.SSHServer):
    def begin_auth(self, username):
        return True

    async def _never(self):
        reached()
        await asyncio.sleep(3600)

    def session_requested(self):
        return self._never()


def shell(stage):
    async def run(process):
        sign = sign_in(process.command).encode()
        if stage == "no unpacking":
            process.stdout.write(sign + b" need\n")
        elif stage == "no hello":
            process.stdout.write(sign + b" ready\n")
        elif stage == "no newline":
            process.stdout.write(b"x" * (3 << 20))
        reached()
        while True:
            if stage == "garbage":
                process.stdout.write(b"milabench-boot ready\nmilabench-boot-0123456789abcdef ready\n\xff\0\n")
            await asyncio.sleep(0.2)

    return run


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
