"""Queues of work on the device, and points in them."""

from __future__ import annotations

from collections import deque

import pyopencl as cl

from onnxplug import ep


class OpenClEvent(ep.Event):
    """The point behind a command.

    Attributes:
        event: OpenCL's.
        context: whose it is, and who may wait for it.
    """

    def __init__(self, event: cl.Event, context: cl.Context) -> None:
        self.event = event
        self.context = context

    def done(self) -> bool:
        """Whether the command is done, or has failed."""
        return is_done(self.event)

    def synchronize(self) -> None:
        """Wait for the command; raises if it has failed."""
        self.event.wait()


class OpenClStream(ep.Stream):
    """A command queue, which does one command after the other.

    Attributes:
        queue: OpenCL's.  It notes when commands begin and end, for profiles.
    """

    def __init__(self, context: cl.Context) -> None:
        self._context = context
        self.queue = cl.CommandQueue(
            context, properties=cl.command_queue_properties.PROFILING_ENABLE
        )
        self.native_handle = self.queue.int_ptr
        self._copies: deque[cl.Event] = deque()

    def record(self) -> OpenClEvent:
        """The point behind all that is queued.

        Commands may stay on the host until the queue is flushed; a queue that waits
        for them would wait for ever.
        """
        event = cl.enqueue_marker(self.queue)
        self.queue.flush()
        return OpenClEvent(event, self._context)

    def wait(self, event: ep.Event) -> bool:
        """Let what is queued from now on wait; not for other contexts' events."""
        if not isinstance(event, OpenClEvent) or event.context != self._context:
            return False
        cl.enqueue_barrier(self.queue, wait_for=[event.event])
        return True

    def keep(self, copy: cl.Event) -> None:
        """Keep the event of a copy from or to the host until that is done.

        pyopencl has it refer to the host's array, and waits when it is dropped before.
        """
        while self._copies and is_done(self._copies[0]):
            self._copies.popleft()
        self._copies.append(copy)

    def synchronize(self) -> None:
        """Wait for all that is queued."""
        self.queue.finish()
        self._copies.clear()

    def close(self) -> None:
        """Let the queue go, whose work is done."""
        self.synchronize()


def is_done(event: cl.Event) -> bool:
    """Whether a command is done, or has failed, which numbers below 0 say."""
    status = event.command_execution_status
    return bool(status <= cl.command_execution_status.COMPLETE)
