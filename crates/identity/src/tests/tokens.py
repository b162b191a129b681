"""Writes tokens.json: keys and tokens by PyJWT 2.10.1. Run by hand; the keys are thrown away."""

import json
import pathlib

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

NOW = 1_800_000_000
CLAIMS = {"iss": "https://issuer.test", "aud": "tandem", "exp": NOW + 600, "nbf": NOW - 600, "tenant": "acme", "sub": "ci"}

rsa_key = rsa.generate_private_key(65537, 2048)
curve_key = ec.generate_private_key(ec.SECP256R1())
edwards_key = ed25519.Ed25519PrivateKey.generate()
foreign_key = ed25519.Ed25519PrivateKey.generate()


def jwk(algorithm, key, kid, **more):
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", **more}


def without(claim):
    return {name: value for name, value in CLAIMS.items() if name != claim}


def token(claims=CLAIMS, key=edwards_key, algorithm="EdDSA", kid="ed"):
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else {})


keys = [
    jwk(RSAAlgorithm, rsa_key, "rsa"), jwk(ECAlgorithm, curve_key, "ec", alg="ES256"), jwk(OKPAlgorithm, edwards_key, "ed"),
    {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
]
right = {
    "RS256": token(key=rsa_key, algorithm="RS256", kid="rsa"),
    "PS512": token(key=rsa_key, algorithm="PS512", kid="rsa"),
    "ES256": token(key=curve_key, algorithm="ES256", kid="ec"),
    "EdDSA": token(),
    "no kid": token(kid=None),
    "several audiences": token({**CLAIMS, "aud": ["other", "tandem"]}),
    "no nbf": token(without("nbf")),
}
header, payload, signature = token().split(".")
other_payload = token({**CLAIMS, "tenant": "other"}).split(".")[1]
wrong = {
    "is not signed by the key that it names": [
        token(key=foreign_key), ".".join([header, other_payload, signature]), f"{header}.{payload}.",
    ],
    "names a key that is not in the key set": [token(kid="else"), token(key=rsa_key, algorithm="RS256", kid="ec")],
    "is signed in a way that is not accepted": [
        jwt.encode(CLAIMS, b"secret", "HS256", headers={"kid": "shared"}),
    ],
    "has expired": [token({**CLAIMS, "exp": NOW - 61})],
    "is not in force yet": [token({**CLAIMS, "nbf": NOW + 61})],
    "is of another issuer": [token({**CLAIMS, "iss": "https://issuer.test.example"})],
    "is for another audience": [token({**CLAIMS, "aud": "tandem2"})],
    "lacks an expiry, an issuer or an audience": [token(without("exp")), token(without("iss")), token(without("aud"))],
    "has no claim \"tenant\" with a name": [token(without("tenant")), token({**CLAIMS, "tenant": 7}), token({**CLAIMS, "tenant": ""})],
    "can not be read": ["a.b.c", f"{payload}.{payload}.{signature}", jwt.encode(CLAIMS, None, "none")],
}
out = {"now": NOW, "jwks": {"keys": keys}, "right": right, "wrong": wrong, "of_guests": token({**CLAIMS, "tenant": "guests"})}
pathlib.Path(__file__).with_name("tokens.json").write_text(json.dumps(out, indent=1) + "\n")
