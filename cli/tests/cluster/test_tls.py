"""TLS between the processes of a cluster: the same answers, and nobody without a certificate of its authority."""

import socket
import ssl
import subprocess

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import certificates
from conftest import MODEL, ROOT, TANDEM, Cluster

ALERT = 0x15


@pytest.fixture(scope="module")
def authority():
    return certificates.Authority("ours")


@pytest.fixture(scope="module")
def folder(authority, tmp_path_factory):
    return authority.fill(tmp_path_factory.mktemp("member"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    return certificates.Authority("theirs").fill(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, folder):
    running = Cluster(tmp_path_factory.mktemp("cluster"), more=("--tls", folder))
    yield running
    running.stop()


def inner(cluster) -> list[str]:
    """Every address that only processes of the cluster have any business at."""
    workers = cluster.state["workers"]
    data = [worker["data"] for worker in workers if worker["data"]]
    assert len(data) == 1
    return [cluster.state["router"]["members"], *(worker["grpc"] for worker in workers), *data]


def connected(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=5)


def serves(address: str, context: ssl.SSLContext) -> bool:
    """Whether who holds this certificate gets past the handshake, which in TLS 1.3 the first read tells."""
    try:
        with connected(address) as tcp, context.wrap_socket(tcp, server_hostname=certificates.MEMBER) as stream:
            stream.settimeout(0.5)
            return stream.recv(1) != b""
    except TimeoutError:
        return True
    except (ssl.SSLError, ConnectionError):
        return False


def same_tokens(cluster, recorded):
    for entry in recorded[:5]:
        count = len(entry["generated_ids"])
        drawn, _ = cluster.inference().tokens(entry["prompt_ids"], temperature=0, ignoreEos=True, maxTokens=count)
        assert drawn == entry["generated_ids"]


def test_the_same_tokens_and_clients_need_no_certificate(cluster, recorded):
    same_tokens(cluster, recorded)
    assert cluster.metrics(cluster.state["router"]["http"])["tandem_router_workers"] == 2


def test_only_members_are_answered(cluster, folder, foreign):
    without = ssl.create_default_context(cafile=folder / "ca.crt")
    stranger = certificates.client(foreign)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    for address in inner(cluster):
        assert serves(address, certificates.client(folder)), address
        assert not serves(address, without), address
        assert not serves(address, stranger), address
        with connected(address) as plain:
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            answer = plain.recv(64)
            assert not answer or answer[0] == ALERT, answer


def test_a_members_grpc_is_reached_with_its_certificate(cluster, folder):
    files = [(folder / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")]
    name = [("grpc.ssl_target_name_override", certificates.MEMBER)]
    address = cluster.workers("decode")[0]["grpc"]
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(*files), options=name) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert health.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("stranger", ["with a foreign certificate", "without one"])
def test_a_stranger_does_not_join(cluster, foreign, tmp_path, stranger):
    log = tmp_path / "log"
    tls = ["--tls", foreign] if stranger == "with a foreign certificate" else []
    router = cluster.state["router"]
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [TANDEM.parent / "tandem-prefill-worker", "--model", MODEL, "--name", "stranger", "--router", router["members"], *tls],
            stdout=out, stderr=out, cwd=ROOT,
        )
        try:
            cluster.wait(lambda: log.read_bytes().count(b"not a member; joining again") > 1, 240, "refusal")
        finally:
            worker.kill()
            worker.wait()
    assert b"joined" not in log.read_bytes()
    assert cluster.metrics(router["http"])["tandem_router_workers"] == 2


def test_new_certificates_need_no_restart(cluster, folder, foreign, recorded):
    former = certificates.client(folder)
    certificates.Authority("next").fill(folder)
    for address in inner(cluster):
        assert serves(address, certificates.client(folder)), address
        assert not serves(address, former), address
    same_tokens(cluster, recorded)
