"""An authority, and folders as members of its cluster have them."""

import datetime
import pathlib
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

MEMBER = "tandem"


class Authority:
    def __init__(self, name: str):
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        unbounded = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self.signed(self.name, self.key, (unbounded, True))

    def signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions) -> x509.Certificate:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder(self.name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())

    def fill(self, folder: pathlib.Path) -> pathlib.Path:
        """As cert-manager writes a member's certificate into a secret."""
        folder.mkdir(exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        own = self.signed(
            x509.Name([]), key, (x509.SubjectAlternativeName([x509.DNSName(MEMBER)]), True), (x509.ExtendedKeyUsage(both), False)
        )
        pem = serialization.Encoding.PEM
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / "tls.crt").write_bytes(own.public_bytes(pem))
        (folder / "tls.key").write_bytes(key.private_bytes(pem, *plain))
        (folder / "ca.crt").write_bytes(self.certificate.public_bytes(pem))
        return folder


def client(folder: pathlib.Path) -> ssl.SSLContext:
    """Shows the folder's certificate and asks for a member of its authority."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context
