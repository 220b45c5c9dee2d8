"""Signed models: what was changed, or signed by another, is refused before any of it is used."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

import nestwright as nw
from nestwright.cli.main import main
from nestwright.codegen.driver.artifact import load
from nestwright.codegen.plan.saved import manifest as facts
from nestwright.codegen.runtime.elf import place
from nestwright.ir.errors import ArtifactError

pytest.importorskip("cryptography", reason="the extra `sign` is not installed")
MODEL = """HloModule plus
ENTRY main { x = f32[64] parameter(0)  y = f32[64] parameter(1)  ROOT z = f32[64] add(x, y) }
"""
X = np.arange(64, dtype=np.float32)


def keys(folder: Path, name: str) -> tuple[Path, Path]:
    """A private and a public key, as files."""
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    form = s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()
    private.write_bytes(key.private_bytes(*form))
    public.write_bytes(
        key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture
def private(tmp_path: Path) -> Path:
    return keys(tmp_path, "key")[0]


@pytest.fixture
def signed(tmp_path: Path, private: Path) -> Path:
    exe = nw.build(nw.parse(MODEL), constants={1: X}, cache=False)
    exe.save(tmp_path / "m.nw", sign=private)
    exe.save(tmp_path / "unsigned.nw")
    return tmp_path / "m.nw"


@pytest.fixture
def public(private: Path) -> Path:
    return private.with_suffix(".pub.pem")


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(file: Path, data: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for name, each in data.items():
            archive.writestr(name, each)
    return file


def test_a_signed_model_is_loaded_with_and_without_its_key(signed: Path, public: Path) -> None:
    for trusted in (None, public, str(public), public.read_bytes()):
        assert (load(signed, trusted=trusted)(X) == 2 * X).all()


def test_unsigned_and_other_keys_are_refused(signed: Path, public: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="the file is not signed"):
        load(signed.with_name("unsigned.nw"), trusted=public)
    with pytest.raises(ArtifactError, match="the signature does not fit: it was made with another"):
        load(signed, trusted=keys(tmp_path, "other")[1])


def sealed(data: dict[str, bytes]) -> None:
    """Make the digests fit again, as an editor who knows the format would."""
    manifest = json.loads(data[facts.MANIFEST])
    rest = {n: d for n, d in data.items() if n not in (facts.MANIFEST, facts.SIGNATURE)}
    manifest["sha256"] = {n: facts.hex_digest(d) for n, d in rest.items()}
    manifest["sums"] = facts.sums(np.frombuffer(data["constants"], np.uint8))
    manifest["digest"] = facts.digest(manifest)
    data[facts.MANIFEST] = json.dumps(manifest).encode()


def edit(name: str, seal: bool) -> Callable[[dict[str, bytes]], None]:
    def change(data: dict[str, bytes]) -> None:
        old = data[name]
        data[name] = old[:-1] + bytes([old[-1] ^ 1])
        if seal:
            sealed(data)

    return change


def added(data: dict[str, bytes]) -> None:
    data["runtime/9.o"] = data["runtime/0.o"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (edit("program.o", False), "program.o does not match its digest"),
        (edit("plan.json", False), "plan.json does not match its digest"),
        (edit("constants", False), "constants do not match their digest"),
        (edit("program.o", True), "the signature does not fit"),
        (edit("constants", True), "the signature does not fit"),
        (edit("manifest.sig", False), "the signature does not fit"),
        (lambda data: data.pop("manifest.sig") and None, "not signed"),
        (added, "the manifest does not know runtime/9.o"),
        (lambda data: data.update({"manifest.sig": b"short"}), "the signature does not fit"),
    ],
)
def test_what_was_changed_is_refused_and_nothing_is_made_executable(
    signed: Path,
    public: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, bytes]], None],
    why: str,
) -> None:
    data = members(signed)
    change(data)
    changed = written(tmp_path / "changed.nw", data)
    monkeypatch.setattr(place, "place", lambda *_: pytest.fail("code was loaded"))
    with pytest.raises(ArtifactError, match=why):
        load(changed, trusted=public)


def test_no_mutant_of_a_signed_file_is_taken_for_another(
    signed: Path, public: Path, tmp_path: Path
) -> None:
    r, data = Random(0), signed.read_bytes()
    taken = 0
    for _ in range(300):
        mutant = bytearray(data)
        match r.randrange(3):
            case 0:
                mutant[r.randrange(len(mutant))] ^= 1 << r.randrange(8)
            case 1:
                del mutant[r.randrange(len(mutant)) :]
            case _:
                at = r.randrange(len(mutant))
                del mutant[at : at + r.choice((1, 16, 4096))]
        (tmp_path / "mutant.nw").write_bytes(mutant)
        try:
            exe = load(tmp_path / "mutant.nw", trusted=public)
        except ArtifactError:
            continue
        taken += 1
        assert (exe(X) == 2 * X).all()
    assert taken < 150  # dates, names' attributes, padding


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not a private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private key"),
        (None, "No such file"),
    ],
)
def test_keys_that_are_none_are_refused(
    signed: Path, tmp_path: Path, text: bytes | None, why: str
) -> None:
    if text is not None:
        (tmp_path / "bad.pem").write_bytes(text)
    with pytest.raises(ArtifactError, match=why):
        load(signed).save(tmp_path / "n.nw", sign=tmp_path / "bad.pem")
    assert not (tmp_path / "n.nw").exists()


def test_keys_of_another_kind_are_refused(signed: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = key.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(ArtifactError, match="it is not an Ed25519 key"):
        load(signed, trusted=pem)


def test_the_commands_sign_and_trust(
    tmp_path: Path, private: Path, public: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.hlo").write_text(MODEL)
    model, out = str(tmp_path / "m.hlo"), str(tmp_path / "out.nw")
    assert main(["build", model, "-o", out, "--sign", str(private)]) == 0
    assert main(["run", out, "--random", "0", "--trusted", str(public)]) == 0
    capsys.readouterr()
    other = str(keys(tmp_path, "other")[1])
    assert main(["run", out, "--random", "0", "--trusted", other]) == 2
    assert "the signature does not fit" in capsys.readouterr().err
    assert main(["build", model, "--sign", str(private)]) == 2
    assert main(["run", model, "--random", "0", "--trusted", other]) == 2
