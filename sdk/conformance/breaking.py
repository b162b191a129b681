"""A way to a router that breaks in the middle of an answer."""

import contextlib
import socket
import struct
import threading

# Some responses into a stream of a hundred and more, and far from its end.
BYTES = 1800


class Breaking:
    """Forwards connections to `address`; the first breaks after `BYTES` bytes of answers, and with `for_good` no other is taken."""

    def __init__(self, address: str, for_good: bool):
        host, port = address.rsplit(":", 1)
        self.router = host, int(port)
        self.for_good = for_good
        self.connections = 0
        self.open: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                router = socket.create_connection(self.router)
                self.connections += 1
                self.open += [client, router]
                limit = BYTES if self.connections == 1 else None
                threading.Thread(target=self.forward, args=(client, router, None), daemon=True).start()
                threading.Thread(target=self.forward, args=(router, client, limit), daemon=True).start()

    def forward(self, source: socket.socket, sink: socket.socket, limit: int | None):
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
                passed += len(data)
                if limit is not None and passed > limit:
                    if self.for_good:
                        stop(self.listener)
                    break
        stop(source)
        stop(sink)

    def close(self):
        for one in [self.listener, *self.open]:
            stop(one)


def stop(one: socket.socket):
    """At once, as when a process dies: whoever reads or writes is told."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
