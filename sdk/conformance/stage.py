"""Where a case takes place: whom each SDK asks, and what happens meanwhile."""

import contextlib
import os
import signal
import socket
import threading
import time

import tandem
from tandem import GenerateRequest, Sampling, Tokens

from breaking import Breaking
from played import Played

# As the cluster of this suite is started: more than SDKs, so that only a case that fills the router finds it full.
PERMITS = 8
MOMENT = 0.3


def nowhere() -> str:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


class Stage(contextlib.ExitStack):
    """`urls` has the address for each SDK; `others` has the played routers and breaking connections, if any."""

    def __init__(self, case: dict, names: list[str], cluster, authorities: dict):
        super().__init__()
        self.names = names
        self.cluster = cluster
        self.others: dict = {}
        router = cluster.state["router"]
        at = case.get("at", "router")
        if "played" in case:
            tls = authorities[case["tls"]] if "tls" in case else None
            self.put(lambda: Played(case["played"], tls))
        elif at in ("breaking connection", "connection that breaks for good"):
            self.put(lambda: Breaking(router["grpc"], for_good=at != "breaking connection"))
        elif at == "router that is killed":
            self.same(f"http://{router['grpc']}")
            before = self.first_tokens()
            self.meanwhile(lambda: self.kill(router, before + len(names)))
        else:
            port = router["grpc"].rsplit(":", 1)[1]
            places = {"router": f"http://{router['grpc']}", "name": f"http://localhost:{port}", "nowhere": nowhere()}
            self.same(places.get(at, at))
        if "full" in case:
            self.fill(f"http://{router['grpc']}", for_a_moment=case["full"] == "for a moment")

    def put(self, make):
        self.others = {name: make() for name in self.names}
        for one in self.others.values():
            self.callback(one.close)
        self.urls = {name: one.url for name, one in self.others.items()}

    def same(self, url: str):
        self.urls = dict.fromkeys(self.names, url)

    def meanwhile(self, work):
        thread = threading.Thread(target=work)
        thread.start()
        self.callback(thread.join)

    def fill(self, url: str, for_a_moment: bool):
        """Takes every permit, until the stage or the moment is over."""
        client = self.enter_context(tandem.Client(url))
        endless = Sampling(max_tokens=4000, temperature=0, ignore_eos=True)
        request = GenerateRequest(model=self.cluster.model.name, tokens=Tokens(ids=[5, 6]), sampling=endless)
        generations = [client.generate(request) for _ in range(PERMITS)]
        self.cluster.wait(lambda: self.permits() == PERMITS, 10, "full router")

        def leave():
            for generation in generations:
                generation.cancel()

        if for_a_moment:
            self.meanwhile(lambda: (time.sleep(MOMENT), leave()))
        else:
            self.callback(leave)

    def permits(self) -> float:
        return self.said("tandem_router_permits_held")

    def first_tokens(self) -> float:
        return self.said("tandem_router_first_token_seconds_count")

    def said(self, metric: str) -> float:
        return self.cluster.metrics(self.cluster.state["router"]["http"])[metric]

    def kill(self, router: dict, streams: float):
        self.cluster.wait(lambda: self.first_tokens() >= streams, 60, "stream of every SDK")
        time.sleep(0.5)
        os.kill(router["pid"], signal.SIGKILL)
