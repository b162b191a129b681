"""One peer engine under the trials of `make bench-kvxfer`: bench_kvxfer_peer.py nixl|nixl-cma|mooncake

`BYTES CUT COUNT` a line on standard input, one JSON line back, as kvxfer's own bench answers. The initiator writes into the
memory of a target, a process of its own that this one starts, and counts a transfer once the remote end has it.
"""

import ctypes
import json
import mmap
import os
import resource
import subprocess
import sys
import time

ARENA = 1 << 30
PAGE = 64 << 10


def arena():
    """Touched memory and its address."""
    memory = mmap.mmap(-1, ARENA)
    for at in range(0, ARENA, 4096):
        memory[at] = at >> 12 & 255
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Target:
    """The other process, asked for its CPU time between trials."""

    def __init__(self, engine):
        command = [sys.executable, __file__, engine, "target"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hello = self.answer()

    def answer(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("the target has ended")
            if line.startswith("{"):
                return json.loads(line)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()


class Nixl:
    """UCX over TCP; the initiator polls for itself instead of having a thread spin, which is its best setting here."""

    SETTINGS = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}

    def __init__(self, name, progress):
        os.environ.update(self.SETTINGS)
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=progress, backends=["UCX"]))
        self.memory, self.base = arena()
        self.registered = self.agent.register_memory([(self.base, ARENA, 0, "")], "DRAM")

    def hello(self):
        return {"meta": self.agent.get_agent_metadata().hex(), "base": self.base}

    def connect(self, hello):
        self.remote = self.agent.add_remote_agent(bytes.fromhex(hello["meta"]))
        self.far = hello["base"]

    def prepare(self, pieces):
        near = self.agent.get_xfer_descs([(self.base + at, size, 0) for at, size in pieces], "DRAM")
        far = self.agent.get_xfer_descs([(self.far + at, size, 0) for at, size in pieces], "DRAM")
        return self.agent.initialize_xfer("WRITE", near, far, self.remote)

    def transfer(self, handle):
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        assert state == "DONE", state

    def release(self, handle):
        self.agent.release_xfer_handle(handle)


class NixlCma(Nixl):
    """UCX as it comes: between processes of one host it copies from memory to memory."""

    SETTINGS = {}


class Mooncake:
    def __init__(self, name, progress):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        assert self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
        self.memory, self.base = arena()
        assert self.engine.register_memory(self.base, ARENA) == 0

    def hello(self):
        return {"session": f"127.0.0.1:{self.engine.get_rpc_port()}", "base": self.base}

    def connect(self, hello):
        self.session, self.far = hello["session"], hello["base"]

    def prepare(self, pieces):
        return pieces

    def transfer(self, pieces):
        if len(pieces) == 1:
            at, size = pieces[0]
            code = self.engine.transfer_sync_write(self.session, self.base + at, self.far + at, size)
        else:
            near = [self.base + at for at, _ in pieces]
            far = [self.far + at for at, _ in pieces]
            sizes = [size for _, size in pieces]
            code = self.engine.batch_transfer_sync_write(self.session, near, far, sizes)
        assert code == 0, code

    def release(self, pieces):
        pass


ENGINES = {"nixl": Nixl, "nixl-cma": NixlCma, "mooncake": Mooncake}


def pieces(number, size, cut):
    """Where transfer `number` lies: in one piece, or every second page."""
    if cut == "whole":
        at = number * size % (ARENA - size + 1) // PAGE * PAGE
        return [(at, size)]
    pages = size // PAGE
    return [((number * pages + page) * 2 * PAGE % ARENA, PAGE) for page in range(pages)]


def initiate(engine):
    target = Target(engine)
    peer = ENGINES[engine]("initiator", False)
    peer.connect(target.hello)
    number = 0
    print("{}", flush=True)
    for line in sys.stdin:
        size, cut, count = line.split()
        size, count = int(size), int(count)
        prepared = [peer.prepare(pieces(number + at, size, cut)) for at in range(count)]
        number += count
        far, near = target.ask("cpu")["cpu"], cpu()
        each = []
        for handle in prepared:
            began = time.perf_counter()
            peer.transfer(handle)
            each.append(time.perf_counter() - began)
        used = cpu() - near
        used += target.ask("cpu")["cpu"] - far
        for handle in prepared:
            peer.release(handle)
        gb = size * count / 1e9
        took = {"gb_per_s": gb / sum(each), "cpu_per_gb": used / gb, "p50_us": sorted(each)[count // 2] * 1e6}
        print(json.dumps(took), flush=True)


def be_target(engine):
    peer = ENGINES[engine]("target", True)
    print(json.dumps(peer.hello()), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"cpu": cpu()}), flush=True)


if __name__ == "__main__":
    be_target(sys.argv[1]) if sys.argv[2:] == ["target"] else initiate(sys.argv[1])
