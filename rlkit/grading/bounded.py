"""Calls that end: a function of plain data runs in worker processes under a limit of time and of memory.

A process can be stopped from any thread and on any system; a signal cannot. One helper process loads the libraries
and keeps a pebble pool. Where the system can fork, a worker that was ended is replaced in milliseconds, because it
starts as a copy of the helper; importing the libraries again would take a second or more. The helper is started by
loky, which does not import the user's script again, so that no script needs `if __name__ == "__main__"`; it ends with
its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import itertools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pebble import ProcessPool

PATIENCE = 60.0
"""Seconds without any answer after which the helper counts as dead."""


class Broken(RuntimeError):
    """The workers are gone, which says nothing about the calls."""


class Bounded:
    """A function whose calls run in workers. Safe to use from several threads; starts at the first call.

    Args:
        function: what is called, importable by name; arguments and results are pickled.
        prepare: called once in the helper: loads what the function needs.
        workers: processes.
        megabytes: what a worker may use beside what it starts with.
    """

    def __init__(self, function: Callable[..., Any], prepare: Callable[[], None], workers: int, megabytes: int) -> None:
        self.function, self.prepare, self.workers, self.megabytes = function, prepare, workers, megabytes
        self._lock = threading.Lock()
        self._helper: _Helper | None = None

    def map(self, calls: Sequence[tuple[Any, ...]], seconds: float, workers: int | None = None) -> Iterator[Any]:
        """One result a call, in order; None for a call that met a limit.

        Raises:
            RuntimeError: the workers cannot be started, or the function itself fails.
        """
        if not calls:
            return
        helper = self._running(workers or self.workers)
        futures = [helper.submit(call, seconds) for call in calls]
        for call, future in zip(calls, futures, strict=True):
            try:
                yield helper.wait(future)
            except Broken:  # ended from outside: the call gets a second chance with new workers
                helper = self._running(workers or self.workers)
                yield helper.wait(helper.submit(call, seconds))

    def stop(self) -> None:
        """End the workers; the next call starts new ones."""
        with self._lock:
            if self._helper is not None:
                self._helper.stop()
            self._helper = None

    def _running(self, workers: int) -> _Helper:
        with self._lock:
            helper = self._helper
            if helper is None or not helper.alive() or helper.workers < workers:
                if helper is not None:
                    helper.stop()
                self._helper = helper = _Helper(self.function, self.prepare, workers, self.megabytes)
                atexit.register(helper.stop)
            return helper


class _Helper:
    """The helper process as its parent sees it."""

    def __init__(self, function: Callable[..., Any], prepare: Callable[[], None], workers: int, megabytes: int) -> None:
        context = _loky()
        self.workers, self._pid = workers, os.getpid()
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function, prepare, workers, megabytes))
        _start(self._process)
        theirs.close()
        self._sending = threading.Lock()
        self._numbers = itertools.count()
        self._open: dict[int, Future[Any]] = {}
        self._last = time.monotonic()
        threading.Thread(target=self._receive, daemon=True, name="bounded").start()

    def alive(self) -> bool:
        """Whether it can take calls; after a fork it belongs to the parent."""
        return self._pid == os.getpid() and self._process.is_alive() and not self._end.closed

    def submit(self, call: tuple[Any, ...], seconds: float) -> Future[Any]:
        future: Future[Any] = Future()
        number = next(self._numbers)
        self._open[number] = future
        try:
            with self._sending:
                self._end.send((number, call, seconds))
        except (OSError, ValueError) as error:
            self._fail(error)
        return future

    def wait(self, future: Future[Any]) -> Any:
        started = time.monotonic()
        while True:
            try:
                return future.result(timeout=1.0)
            except (NotYet, TimeoutError):
                if future.done():
                    raise
                if time.monotonic() - max(started, self._last) > PATIENCE:
                    self._kill()  # then `_receive` fails every open call

    def stop(self) -> None:
        """End the process and its workers."""
        if self._pid != os.getpid():
            return
        try:
            with self._sending:
                self._end.send(None)
        except (OSError, ValueError):  # it has ended already
            pass
        self._process.join(2)
        if self._process.is_alive():
            self._kill()

    def _kill(self) -> None:
        import psutil

        with contextlib.suppress(psutil.Error):  # loky's processes have no kill of their own
            psutil.Process(self._process.pid).kill()

    def _receive(self) -> None:
        try:
            while True:
                number, ok, value = self._end.recv()
                self._last = time.monotonic()
                future = self._open.pop(number)
                if ok:
                    future.set_result(value)
                else:
                    future.set_exception(RuntimeError(value))
        except (EOFError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        for number in list(self._open):
            future = self._open.pop(number, None)
            if future is not None and not future.done():
                future.set_exception(Broken(f"The worker processes have ended: {error!r}"))


def _loky() -> Any:
    from joblib.externals.loky.backend import get_context

    return get_context("loky")


def _start(process: Any) -> None:
    """Start a process, in a daemonic one too: the helper ends by itself when its parent does."""
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    daemon = config.pop("daemon", None)
    try:
        process.start()
    finally:
        if daemon is not None:
            config["daemon"] = daemon


# --- in the helper -------------------------------------------------------------------------------------------------


def _serve(
    end: Connection, function: Callable[..., Any], prepare: Callable[[], None], workers: int, megabytes: int
) -> None:
    """Take calls until the parent is gone."""
    import signal
    import warnings

    multiprocessing.current_process()._config.pop("daemon", None)  # type: ignore[attr-defined]  # inherited
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # Python warns of a fork beside threads; pebble's workers use none
    prepare()
    gc.collect()
    gc.freeze()  # workers are forks: a collection over what they share with the helper would copy all of it
    pool = _Pool(function, prepare, workers, megabytes, end)
    threading.Thread(target=_watch_memory, args=(megabytes,), daemon=True).start()
    while True:
        try:
            order = end.recv()
        except (EOFError, OSError):
            order = None
        if order is None:
            break
        pool.submit(*order)
    for process in multiprocessing.active_children():
        process.kill()
    os._exit(0)


class _Pool:
    """pebble's pool, made again when it breaks."""

    def __init__(
        self, function: Callable[..., Any], prepare: Callable[[], None], workers: int, megabytes: int, end: Connection
    ) -> None:
        self._function, self._end = function, end
        self._settings = (prepare, workers, megabytes)
        self._lock = threading.RLock()
        self._pool = self._new()

    def _new(self) -> ProcessPool:
        from pebble import ProcessPool

        prepare, workers, megabytes = self._settings
        forks = sys.platform == "linux"
        context = multiprocessing.get_context("fork") if forks else _loky()
        initial = (None if forks else prepare, megabytes)
        return ProcessPool(max_workers=workers, initializer=_limit_worker, initargs=initial, context=context)

    def submit(self, number: int, call: tuple[Any, ...], seconds: float, again: bool = True) -> None:
        with self._lock:
            if not self._pool.active:
                self._pool = self._new()
            try:
                future = self._pool.schedule(self._function, args=call, timeout=seconds)
            except RuntimeError:  # it broke between the two lines
                self._pool = self._new()
                future = self._pool.schedule(self._function, args=call, timeout=seconds)
        future.add_done_callback(lambda done: self._answer(done, number, call, seconds, again))

    def _answer(self, future: Any, number: int, call: tuple[Any, ...], seconds: float, again: bool) -> None:
        from concurrent.futures.process import BrokenProcessPool

        from pebble import ProcessExpired

        try:
            reply = (number, True, future.result())
        except (TimeoutError, NotYet, ProcessExpired, MemoryError):
            reply = (number, True, None)
        except BrokenProcessPool as error:  # a worker was ended from outside while it had no call
            if again:
                threading.Thread(target=self.submit, args=(number, call, seconds, False)).start()
                return
            reply = (number, False, repr(error))
        except Exception as error:  # the function's own: it goes to the caller
            reply = (number, False, repr(error))
        try:
            with self._lock:
                self._end.send(reply)
        except OSError:
            os._exit(0)


def _limit_worker(prepare: Callable[[], None] | None, megabytes: int) -> None:
    """Make this process a worker: memory limited where the system can, gone with the helper."""
    if prepare:
        prepare()
    try:
        import resource

        import psutil

        most = psutil.Process().memory_info().vms + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (ImportError, ValueError, OSError):  # Windows has none, macOS refuses: there only the helper looks
        pass
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import psutil

    parent = psutil.Process(os.getppid())
    while os.getppid() == parent.pid and parent.is_running():
        time.sleep(1)
    os._exit(1)


def _watch_memory(megabytes: int) -> None:
    """End a worker that has taken too much memory; pebble then starts another and reports the call as failed."""
    import psutil

    start = psutil.Process().memory_info().rss
    while True:
        time.sleep(0.05)
        for process in multiprocessing.active_children():
            try:
                if process.pid and psutil.Process(process.pid).memory_info().rss > start + megabytes * 2**20:
                    process.kill()
            except psutil.Error:  # it ended by itself
                continue
