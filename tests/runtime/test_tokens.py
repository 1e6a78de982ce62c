"""Tokens: what is believed, what is not, and that neither depends on what the token says of itself."""

import base64
import hmac
import json
import logging
import subprocess
from collections.abc import Callable
from hashlib import sha256, sha512
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pixiu.config.security import SecuritySettings
from pixiu.model.errors import (
    ConfigError,
    CorruptData,
    NotFound,
    PixiuError,
    RequestError,
    TooLarge,
    Unauthenticated,
)
from pixiu.ports.authentication import Identity
from pixiu.runtime.keys import Algorithm, Keyring
from pixiu.runtime.tokens import TokenRefused, Tokens

ALICE = Identity("alice", "ios", "phone-1", is_admin=False)
NOW_MS = 1_760_000_000_000


class ManualClock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_us(self) -> int:
        return self.ms * 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def keys(tmp_path: Path, clock: ManualClock) -> Keyring:
    ring = Keyring(tmp_path, clock)
    ring.create("EdDSA")
    return ring


@pytest.fixture
def tokens(keys: Keyring, clock: ManualClock) -> Tokens:
    return Tokens(keys, clock, SecuritySettings())


def signed(keys: Keyring, claims: dict[str, object], **headers: object) -> str:
    """A token with any claims, rightly signed."""
    key = keys.signing()
    assert isinstance(key.signer, Ed25519PrivateKey)
    return jwt.encode(claims, key.signer, algorithm="EdDSA", headers={"kid": key.kid, **headers})


def claims(**changed: object) -> dict[str, object]:
    good: dict[str, object] = {"sub": "alice", "platform": "ios", "device": "d", "exp": NOW_MS // 1000 + 60}
    return {name: value for name, value in {**good, **changed}.items() if value is not ...}


def part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def refused(tokens: Tokens, token: str) -> TokenRefused:
    with pytest.raises(TokenRefused) as caught:
        tokens.verify(token)
    return caught.value


@pytest.mark.parametrize("algorithm", ["EdDSA", "HS256"])
def test_a_token_says_who_it_is_for(tmp_path: Path, clock: ManualClock, algorithm: Algorithm) -> None:
    keys = Keyring(tmp_path, clock)
    keys.create(algorithm)
    tokens = Tokens(keys, clock, SecuritySettings())
    found = tokens.verify(tokens.issue(ALICE, lifetime_ms=60_000))
    assert found == ALICE._replace(expires_at=NOW_MS + 60_000, key=found.key)
    assert tokens.verify(tokens.issue(ALICE._replace(is_admin=True))).is_admin
    header = jwt.get_unverified_header(tokens.issue(ALICE))
    assert (header["alg"], header["kid"]) == (algorithm, keys.signing().kid)


def test_without_a_key_nothing_is_issued_and_nothing_is_believed(tmp_path: Path, clock: ManualClock) -> None:
    """No secret has a default."""
    tokens = Tokens(Keyring(tmp_path, clock), clock, SecuritySettings())
    with pytest.raises(NotFound, match="--new-key"):
        tokens.issue(ALICE)
    assert not (tmp_path / "keys").exists()
    for secret in ("", "secret", "changeme", "pixiu"):
        token = ".".join([part({"alg": "HS256", "kid": ""}), part(claims())])
        mac = hmac.digest(secret.encode() or b"\0", token.encode(), sha256)
        forged = f"{token}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
        assert refused(tokens, forged).reason == "unknown_key"


def test_a_token_ends(tokens: Tokens, clock: ManualClock) -> None:
    token = tokens.issue(ALICE, lifetime_ms=60_000)
    assert tokens.verify(token).user == "alice"
    clock.ms += 60_000 + 4_999  # within the skew
    assert tokens.verify(token).user == "alice"
    clock.ms += 1
    error = refused(tokens, token)
    assert (error.reason, str(error), error.code) == ("expired", "the token has expired", "unauthenticated")
    assert refused(tokens, token).reason == "expired"


@pytest.mark.parametrize("name", ["nbf", "iat"])
def test_a_token_that_begins_later_is_refused(keys: Keyring, tokens: Tokens, clock: ManualClock, name: str) -> None:
    token = signed(keys, claims(**{name: NOW_MS // 1000 + 30}))
    assert refused(tokens, token).reason == "early"
    clock.ms += 30_000
    assert tokens.verify(token).user == "alice"


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": ...},
        {"exp": None},
        {"exp": "9999999999"},
        {"exp": True},
        {"exp": 10**400},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"sub": ...},
        {"sub": ""},
        {"sub": "0"},
        {"sub": 17},
        {"sub": "a\nb"},
        {"sub": "x" * 65},
        {"platform": "first"},
        {"platform": 3},
        {"device": "\x00"},
        {"device": "d" * 65},
        {"admin": "true"},
        {"admin": 1},
        {"nbf": "soon"},
    ],
    ids=str,
)
def test_claims_that_make_no_sense_are_refused(keys: Keyring, tokens: Tokens, changed: dict[str, object]) -> None:
    error = refused(tokens, signed(keys, claims(**changed)))
    assert (error.reason, str(error)) == ("bad_claims", "the token is not valid")


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", ""])
def test_a_token_without_a_signature_is_refused(keys: Keyring, tokens: Tokens, algorithm: str) -> None:
    head = part({"alg": algorithm, "typ": "JWT", "kid": keys.signing().kid})
    for signature in ("", "AA"):
        error = refused(tokens, f"{head}.{part(claims(admin=True))}.{signature}")
        assert error.reason in ("bad_signature", "malformed")


def test_the_public_key_is_no_secret_to_sign_with(keys: Keyring, tokens: Tokens) -> None:
    """The old confusion: HS256 with the public key as the shared secret, in each form it can be had in."""
    key = keys.signing()
    assert isinstance(key.verifier, Ed25519PublicKey)
    raw = key.verifier.public_bytes_raw()
    encodings = serialization.Encoding
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    forms = [raw, base64.urlsafe_b64encode(raw).rstrip(b"="), raw.hex().encode()]
    forms += [key.verifier.public_bytes(encoding, form) for encoding in (encodings.PEM, encodings.DER)]
    for secret in forms:
        for algorithm in ("HS256", "EdDSA"):
            message = f"{part({'alg': algorithm, 'kid': key.kid})}.{part(claims(admin=True))}"
            mac = base64.urlsafe_b64encode(hmac.digest(secret, message.encode(), sha256)).rstrip(b"=").decode()
            assert refused(tokens, f"{message}.{mac}").reason == "bad_signature"


def test_a_shared_secret_does_not_verify_another_algorithm(tmp_path: Path, clock: ManualClock) -> None:
    keys = Keyring(tmp_path, clock)
    key = keys.create("HS256")
    assert isinstance(key.signer, bytes)
    tokens = Tokens(keys, clock, SecuritySettings())
    for algorithm in ("HS384", "HS512"):
        token = jwt.encode(claims(), key.signer * 2, algorithm=algorithm, headers={"kid": key.kid})
        assert refused(tokens, token).reason == "bad_signature"


def test_a_key_of_another_is_not_believed_under_our_name(keys: Keyring, tokens: Tokens) -> None:
    stranger = Ed25519PrivateKey.generate()
    ours = keys.signing().kid
    for headers in ({"kid": ours}, {"kid": "ffffffff"}, {"kid": "../../etc/passwd"}, {"kid": ""}, {}):
        token = jwt.encode(claims(admin=True), stranger, algorithm="EdDSA", headers=headers)
        assert refused(tokens, token).reason in ("bad_signature", "unknown_key")
    jwk = {
        "kty": "OKP",
        "crv": "Ed25519",
        "x": base64.urlsafe_b64encode(stranger.public_key().public_bytes_raw()).decode(),
    }
    token = jwt.encode(claims(), stranger, algorithm="EdDSA", headers={"kid": ours, "jwk": jwk, "jku": "https://evil"})
    assert refused(tokens, token).reason == "bad_signature"


def test_an_extension_that_must_be_understood_is_not(keys: Keyring, tokens: Tokens) -> None:
    assert refused(tokens, signed(keys, claims(), crit=["exp"])).reason in ("bad_signature", "malformed")


def test_no_single_changed_character_is_believed(tokens: Tokens) -> None:
    token = tokens.issue(ALICE)
    tokens.verify(token)
    for at in range(len(token)):
        for other in "ABQ_.=":
            if token[at] != other:
                with pytest.raises(Unauthenticated):
                    tokens.verify(token[:at] + other + token[at + 1 :])


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("padding", ["=", "==", "===", "\n", " ", "%3D"])
def test_padded_token_is_refused(tokens: Tokens, part: int, padding: str) -> None:
    parts = tokens.issue(ALICE).split(".")
    parts[part] += padding
    assert refused(tokens, ".".join(parts)).reason == "malformed"


def test_recheck_refuses_when_the_key_was_retired_or_replaced_under_its_id(
    keys: Keyring, tokens: Tokens, tmp_path: Path
) -> None:
    told: list[Identity | PixiuError] = []
    kid = keys.signing().kid
    identity = tokens.verify(tokens.issue(ALICE))
    tokens.recheck(identity, told.append)
    generation = tokens.generation
    path = tmp_path / "keys" / f"{kid}.json"
    made = keys.create("EdDSA").kid
    other = json.loads((tmp_path / "keys" / f"{made}.json").read_text())
    path.write_text(json.dumps(other | {"kid": kid}))
    keys._look()
    assert tokens.generation > generation
    tokens.recheck(identity, told.append)
    assert told[0] == identity and isinstance(told[1], TokenRefused)


def test_keys_stay_while_their_folder_cannot_be_read(
    keys: Keyring, tokens: Tokens, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = tokens.issue(ALICE)

    def fails(_: object) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pathlib.Path.iterdir", fails)
    keys._look()
    assert tokens.verify(token).user == "alice"
    assert "signing_key_ignored" in caplog.text


def test_claims_of_one_token_under_the_signature_of_another_are_refused(tokens: Tokens) -> None:
    head, _, signature = tokens.issue(ALICE).split(".")
    other = tokens.issue(ALICE._replace(is_admin=True)).split(".")[1]
    assert refused(tokens, f"{head}.{other}.{signature}").reason == "bad_signature"


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "...", "a.b.c", "x" * 5000, "é.é.é", f"{'[' * 3000}.x.y", part("[" * 1000) + ".x.y",
     base64.urlsafe_b64encode(b"[" * 2900).decode().rstrip("=") + ".e30.x", "e30.e30.", "\x00.\x00.\x00"],
    ids=lambda token: token[:12],
)  # fmt: skip
def test_nonsense_is_refused_in_words_that_tell_nothing(tokens: Tokens, token: str) -> None:
    error = refused(tokens, token)
    assert str(error) in ("the token is not valid", "a token is needed: Authorization: Bearer TOKEN")
    assert not tokens.knows(token)


@given(token=st.text(alphabet=st.sampled_from("abcXYZ019-_.={}\n "), max_size=200) | st.text(max_size=50))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_raises_anything_else(tokens: Tokens, token: str) -> None:
    with pytest.raises(TokenRefused):
        tokens.verify(token)


def test_authenticate_tells_both_ways(tokens: Tokens) -> None:
    told: list[object] = []
    tokens.authenticate(tokens.issue(ALICE), told.append)
    tokens.authenticate("nonsense", told.append)
    assert isinstance(told[0], Identity) and isinstance(told[1], TokenRefused)


def test_nobody_is_given_a_token_for_a_name_that_cannot_be(tokens: Tokens) -> None:
    for identity, error in (
        (ALICE._replace(user=""), RequestError),
        (ALICE._replace(user="x" * 65), TooLarge),
        (ALICE._replace(platform="first"), RequestError),
        (ALICE._replace(device="a\tb"), RequestError),
    ):
        with pytest.raises(error):
            tokens.issue(identity)


# Keys.


def test_the_newest_key_signs_all_verify_and_a_retired_one_does_not(keys: Keyring, tokens: Tokens) -> None:
    old = keys.signing().kid
    before = tokens.issue(ALICE)
    assert tokens.verify(before)
    new = keys.create("HS256").kid
    after = tokens.issue(ALICE)
    assert jwt.get_unverified_header(after)["kid"] == new
    assert tokens.verify(before)._replace(key="") == tokens.verify(after)._replace(key="")
    keys.retire(old)
    assert refused(tokens, before).reason == "unknown_key"
    assert tokens.verify(after)
    with pytest.raises(NotFound):
        keys.retire(old)


def test_a_running_server_follows_the_files(tmp_path: Path, keys: Keyring, tokens: Tokens, clock: ManualClock) -> None:
    """Another process makes and retires keys; this one notices, also of a token that it has believed before."""
    elsewhere = Keyring(tmp_path, clock)
    first = keys.signing().kid
    before = tokens.issue(ALICE)
    assert tokens.verify(before)
    clock.ms += 100
    elsewhere.create("EdDSA")
    fresh = Tokens(elsewhere, clock, SecuritySettings()).issue(ALICE)
    assert tokens.verify(fresh)
    elsewhere.retire(first)
    clock.ms += 1_000
    assert refused(tokens, before).reason == "unknown_key"


def test_key_files_are_for_their_owner_alone(tmp_path: Path, keys: Keyring, clock: ManualClock) -> None:
    (path,) = (tmp_path / "keys").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=r"read by others \(mode 640\)"):
        Keyring(tmp_path, clock)


def test_a_key_without_its_secret_half_verifies_and_cannot_sign(
    tmp_path: Path, keys: Keyring, tokens: Tokens, clock: ManualClock
) -> None:
    token = tokens.issue(ALICE)
    (path,) = (tmp_path / "keys").iterdir()
    held = json.loads(path.read_text())
    del held["d"]
    copy = tmp_path / "gateway" / "keys" / path.name
    copy.parent.mkdir(parents=True)
    copy.write_text(json.dumps(held))
    copy.chmod(0o644)
    verifying = Tokens(Keyring(tmp_path / "gateway", clock), clock, SecuritySettings())
    assert verifying.verify(token).user == "alice"
    with pytest.raises(NotFound):
        verifying.issue(ALICE)


def break_json(held: dict[str, object]) -> str:
    return "{"


def short_secret(held: dict[str, object]) -> str:
    return json.dumps({**held, "alg": "HS256", "kty": "oct", "k": "c2hvcnQ"})


def other_half(held: dict[str, object]) -> str:
    return json.dumps({**held, "d": base64.urlsafe_b64encode(b"\1" * 32).decode()})


def other_algorithm(held: dict[str, object]) -> str:
    return json.dumps({**held, "alg": "none"})


def other_name(held: dict[str, object]) -> str:
    return json.dumps({**held, "kid": "someone"})


@pytest.mark.parametrize("damage", [break_json, short_secret, other_half, other_algorithm, other_name])
def test_a_file_that_is_no_key_refuses_the_start_and_is_left_out_later(
    tmp_path: Path,
    keys: Keyring,
    tokens: Tokens,
    clock: ManualClock,
    damage: Callable[[dict[str, object]], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = keys.create("EdDSA").kid
    bad = next(path for path in (tmp_path / "keys").iterdir() if path.stem != good)
    bad.write_text(damage(json.loads(bad.read_text())))
    with pytest.raises(CorruptData, match="is not a key") as caught:
        Keyring(tmp_path, clock)
    clock.ms += 2_000
    with caplog.at_level(logging.ERROR):
        assert tokens.verify(tokens.issue(ALICE)).user == "alice"
    assert [key.kid for key in keys.keys] == [good]
    assert "signing_key_ignored" in caplog.text
    command = str(caught.value).partition("set it aside: ")[2].partition(". Tokens")[0]
    subprocess.run(["sh", "-c", command], check=True)
    assert [key.kid for key in Keyring(tmp_path, clock).keys] == [good]


# Ed25519 as RFC 8032 has it, slow and short, with a nonce of one's own choice.
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
BASE_Y = 4 * pow(5, P - 2, P) % P
BASE_X = 15112221349535400772501151409588531511454012693041857206046113283949847762202


def added(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    turned = D * a[0] * b[0] * a[1] * b[1]
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + turned, P - 2, P) % P
    return x, (a[1] * b[1] + a[0] * b[0]) * pow(1 - turned, P - 2, P) % P


def times_base(number: int) -> bytes:
    total, point = (0, 1), (BASE_X, BASE_Y)
    while number:
        if number & 1:
            total = added(total, point)
        point, number = added(point, point), number >> 1
    return (total[1] | (total[0] & 1) << 255).to_bytes(32, "little")


def signed_otherwise(private: Ed25519PrivateKey, message: bytes, nonce: int) -> bytes:
    half = sha512(private.private_bytes_raw()).digest()[:32]
    secret = (int.from_bytes(half, "little") & (2**254 - 8)) | 2**254
    first, public = times_base(nonce), private.public_key().public_bytes_raw()
    challenge = int.from_bytes(sha512(first + public + message).digest(), "little")
    return first + ((nonce + challenge * secret) % L).to_bytes(32, "little")


@pytest.mark.feature("P24")
def test_a_right_signature_of_a_signer_with_other_nonces_is_believed(keys: Keyring, tokens: Tokens) -> None:
    """A node that can sign compares with what it would sign itself; that is no reason to refuse what is right."""
    key = keys.signing()
    assert isinstance(key.signer, Ed25519PrivateKey)
    text, _, signature = tokens.issue(ALICE).rpartition(".")
    other = signed_otherwise(key.signer, text.encode(), nonce=123456789)
    assert other != base64.urlsafe_b64decode(signature + "==")
    assert tokens.verify(f"{text}.{base64.urlsafe_b64encode(other).rstrip(b'=').decode()}").user == "alice"
    wrong = signed_otherwise(key.signer, text.encode() + b".", nonce=123456789)
    with pytest.raises(TokenRefused) as refused:
        tokens.verify(f"{text}.{base64.urlsafe_b64encode(wrong).rstrip(b'=').decode()}")
    assert refused.value.reason == "bad_signature"
