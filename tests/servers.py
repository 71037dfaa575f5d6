"""The real app in a process of its own: what browser tests, server tests and benchmarks start.

server CPU   the server's utime and stime, as /proc/<pid>/stat counts them, read through the process's CPU clock, whose
             grain is finer than that file's 10 ms
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
Result = TypeVar("Result")

START_SECONDS = 180  # a first start on a busy machine compiles and imports everything


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine, run in a thread of its own: a browser's driver keeps a loop running in a test's."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


class Server:
    """One Streamlit server on a free port; it answers when this returns. What it writes goes to `log`.

    script, options   as after `streamlit run`
    environment       more variables for it
    base              the path below which it is served, as in its options
    """

    def __init__(
        self, script: str, *options: str, log: Path = Path(os.devnull), base: str = "", **environment: str
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"localhost:{port}"
        self.url = f"http://{self.address}{base}"
        self.log = log
        self.started = time.perf_counter()
        command = [sys.executable, "-m", "streamlit", "run", script, f"--server.port={port}", *options]
        with log.open("w") as sink:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=sink, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )
        self._wait()

    def _wait(self) -> None:
        end = self.started + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.perf_counter() > end:
                self.stop()
                written = self.log.read_text() if self.log.is_file() else ""
                raise RuntimeError(f"the server did not start:\n{written}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2):
                return True
        except OSError:  # refused, reset, or not answered in time
            return False

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all its threads, ended ones too: Linux's clock of another process."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    @property
    def resident(self) -> int:
        """Bytes that are resident now."""
        return self._status_bytes("VmRSS:")

    @property
    def peak_resident(self) -> int:
        """The most bytes that were ever resident."""
        return self._status_bytes("VmHWM:")

    def _status_bytes(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(name)[1].split()[0]) * 1024

    @property
    def has_torch(self) -> bool:
        return "libtorch" in Path(f"/proc/{self.process.pid}/maps").read_text()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


@contextmanager
def running(script: str, *options: str, **more: Any) -> Iterator[Server]:
    server = Server(script, *options, **more)
    try:
        yield server
    finally:
        server.stop()
