"""NVIDIA's compiler as a library (NVRTC): finding it, and compiling CUDA text to images, each once.

It needs neither a driver nor a GPU. Inside one process it compiles one source at a time, so that processes are used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from korch_cli.core.errors import MissingError, UsageError
from korch_cli.core.gpu import Image, Resources, capability_of
from korch_cli.core.progress import Progress
from korch_cli.toolchain.build import BuildFailure
from korch_cli.toolchain.children import Children
from korch_cli.toolchain.compiler import first_line
from korch_cli.toolchain.nvrtc_worker import CompileError, Nvrtc
from korch_cli.toolchain.objects import is_there, keep, scratch_in

_WORKER = Path(__file__).with_name("nvrtc_worker.py")
_WHEELS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
"""Where the wheels nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12 put their libraries."""
_LOADER = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_INSTALL = "pip install nvidia-cuda-nvrtc"
_OPTIONS = ("-std=c++17", "--ptxas-options=-v")
_BATCH = 12
"""Sources for one process: starting it takes as long as compiling one or two."""
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class CudaCompiler:
    """NVRTC, found.

    Attributes:
        library: its path.
        version: e.g. (13, 0).
        capabilities: what it compiles for, compute capabilities times ten, ascending.
    """

    library: str
    version: tuple[int, int]
    capabilities: tuple[int, ...]

    @property
    def identity(self) -> str:
        """Version and options in one string; images of different ones are kept apart."""
        return f"NVRTC {self.version[0]}.{self.version[1]} {' '.join(_OPTIONS)}"

    def require(self, archs: Sequence[str]) -> None:
        """Raise UsageError for an architecture that it does not compile for."""
        for arch in archs:
            if capability_of(arch) not in self.capabilities:
                known = ", ".join(f"sm_{c}" for c in self.capabilities)
                version = ".".join(map(str, self.version))
                raise UsageError(f"NVRTC {version} does not compile for this architecture", where=arch, hint=known)


def find_nvrtc() -> CudaCompiler:
    """Return NVRTC, from a wheel, from CUDA_HOME, or from where the system's loader looks.

    Raises:
        MissingError: it is not installed, or it does not load.
    """
    problems = []
    for path in _places():
        try:
            nvrtc = Nvrtc(path)
            return CudaCompiler(path, nvrtc.version(), nvrtc.capabilities())
        except (OSError, AttributeError, CompileError) as error:
            problems.append(str(error))
    tried = f" ({problems[0]})" if problems else ""
    raise MissingError(f"NVRTC, which compiles CUDA kernels, is not there{tried}", hint=_INSTALL)


def compile_images(
    compiler: CudaCompiler,
    units: Mapping[str, str],
    headers: Mapping[str, str],
    archs: Sequence[str],
    cache: Path,
    *,
    jobs: int,
    progress: Progress,
    timeout_s: float = 60.0,
) -> dict[tuple[str, str], Image | BuildFailure]:
    """Return an image, or a failure, for each unit and each architecture.

    Args:
        compiler: NVRTC.
        units: CUDA C++ texts by name.
        headers: files that the units may include, by name.
        archs: "sm_90" for a cubin, "compute_80" for PTX.
        cache: folder for images; shared between processes and runs.
        jobs: processes that run at the same time.
        progress: told of each image that had to be compiled.
        timeout_s: seconds that one image may take.

    Raises:
        MissingError: the folder cannot be written.
    """
    todo = [
        _Job(name, arch, text, _target(compiler, text, headers, arch, cache))
        for name, text in units.items()
        for arch in archs
    ]
    results: dict[tuple[str, str], Image | BuildFailure] = {}
    missing = []
    for job in todo:
        if is_there(job.target) and is_there(_log(job.target)):
            results[job.name, job.arch] = _image(job)
        else:
            missing.append(job)
    if not missing:
        return results
    share = max(1, min(_BATCH, -(-len(missing) // max(1, jobs))))
    batches = [missing[i : i + share] for i in range(0, len(missing), share)]
    with scratch_in(cache) as scratch, Children() as children, ThreadPoolExecutor(max(1, jobs)) as pool:
        builds = [_Build(compiler, dict(headers), Path(scratch), children, timeout_s, i) for i in range(len(batches))]
        futures = [pool.submit(build.run, batch) for build, batch in zip(builds, batches, strict=True)]
        try:
            for future in as_completed(futures):
                results |= future.result()
                progress.step(sum(key in results for key in ((j.name, j.arch) for j in missing)), len(missing))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.kill()
            raise
    return {(job.name, job.arch): results[job.name, job.arch] for job in todo}


@dataclass(frozen=True, slots=True)
class _Job:
    """A unit to be compiled for an architecture into the file `target`."""

    name: str
    arch: str
    text: str
    target: Path


@dataclass(frozen=True, slots=True)
class _Build:
    """One batch: what a child process compiles."""

    compiler: CudaCompiler
    headers: dict[str, str]
    folder: Path
    children: Children
    timeout_s: float
    number: int

    def run(self, batch: Sequence[_Job]) -> dict[tuple[str, str], Image | BuildFailure]:
        """Compile; where the child crashes or hangs, the job that it was at fails and a new one does the rest."""
        found: dict[tuple[str, str], Image | BuildFailure] = {}
        todo = list(batch)
        while todo:
            errors, broken = self._child(todo)
            for job, error in zip(todo, errors, strict=False):
                found[job.name, job.arch] = self._kept(job, error)
            rest = todo[len(errors) :]
            if rest:
                sentence = broken or "the compiler ended without an answer"
                found[rest[0].name, rest[0].arch] = BuildFailure(rest[0].name, sentence, "")
            todo = rest[1:]
        return found

    def _child(self, todo: Sequence[_Job]) -> tuple[list[str | None], str]:
        """Return an error, or None, for each job that was finished, and what became of the child otherwise."""
        results = self.folder / f"results{self.number}.json"
        results.unlink(missing_ok=True)
        request = self.folder / f"request{self.number}.json"
        document = {
            "library": self.compiler.library,
            "headers": self.headers,
            "results": str(results),
            "jobs": list(map(self._request, todo)),
        }
        request.write_text(json.dumps(document), encoding="utf-8")
        broken = ""
        try:
            command = [sys.executable, "-P", str(_WORKER), str(request)]
            code, log = self.children.run(command, self.folder, _START_S + self.timeout_s * len(todo))
            if code:
                broken = f"the compiler ended with {code}: {first_line(log)}"
        except subprocess.TimeoutExpired:
            broken = f"compiling takes more than {self.timeout_s:.0f} s"
        lines = results.read_text(encoding="utf-8").splitlines(keepends=True) if results.exists() else []
        return [json.loads(line)["error"] for line in lines if line.endswith("\n")], broken

    def _request(self, job: _Job) -> dict[str, object]:
        source = self.folder / f"{job.target.stem}.cu"
        source.write_text(job.text, encoding="utf-8")
        made = self._made(job)
        cubin = job.arch.startswith("sm_")
        # PTX is not assembled here, and its compiler does not know the assembler's options.
        options = [f"-arch={job.arch}", *(o for o in _OPTIONS if cubin or "ptxas" not in o)]
        return {"source": str(source), "options": options, "cubin": cubin, "image": str(made), "log": str(_log(made))}

    def _made(self, job: _Job) -> Path:
        return self.folder / job.target.name

    def _kept(self, job: _Job, error: str | None) -> Image | BuildFailure:
        if error is not None:
            return BuildFailure(job.name, first_line(error), error)
        try:
            keep(_log(self._made(job)), _log(job.target))
            keep(self._made(job), job.target)
        except OSError as failure:
            return BuildFailure(job.name, f"the image cannot be kept: {failure.strerror}", "")
        return _image(job)


def _places() -> Iterator[str]:
    for folder in dict.fromkeys(sys.path):
        for wheel in _WHEELS:
            yield from _libraries(Path(folder) / wheel)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield from _libraries(Path(os.environ[variable]) / "lib64")
    yield from _LOADER


def _libraries(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.glob("libnvrtc.so*"), reverse=True) if ".alt." not in path.name]


def _target(compiler: CudaCompiler, text: str, headers: Mapping[str, str], arch: str, cache: Path) -> Path:
    digest = hashlib.sha256(compiler.identity.encode())
    for part in (arch, text, *(f"{name}\n{content}" for name, content in sorted(headers.items()))):
        digest.update(b"\0")
        digest.update(part.encode())
    return cache / f"{digest.hexdigest()}.{'cubin' if arch.startswith('sm_') else 'ptx'}"


def _log(image: Path) -> Path:
    return image.with_name(f"{image.name}.log")


def _image(job: _Job) -> Image:
    return Image(job.arch, job.target, read_resources(_log(job.target).read_text(encoding="utf-8")))


def read_resources(log: str) -> dict[str, Resources]:
    """Return what each function needs, from what the assembler wrote (`ptxas -v`)."""
    found = {}
    for part in re.split(r"(?=Compiling entry function)", log):
        name = re.match(r"Compiling entry function '([^']+)'", part)
        if name:
            used = _number(r"Used (\d+) registers", part)
            spilled = _number(r"(\d+) bytes spill stores", part) + _number(r"(\d+) bytes spill loads", part)
            found[name[1]] = Resources(used, spilled, _number(r"(\d+) bytes smem", part))
    return found


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0
