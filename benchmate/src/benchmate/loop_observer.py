"""The observer of a loop: times each step, separates warm-up from window, and ends the program when the window is complete.

Inside the measured loop run only `Observer.record` and the generator that calls it: no system call, lock or thread, and
nothing that grows with the number of steps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import repeat
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from benchmate.batch_size import BatchSize, size_function
from benchmate.clock import wait_for_devices
from benchmate.errors import BatchSizeError, BenchmateError
from benchmate.observation_writer import RESERVE, ObservationWriter
from benchmate.rank_consensus import RankConsensus
from benchmate.records import window_record
from benchmate.ring import (
    EPOCH_END,
    FIRST_SLOT,
    HEAD,
    NO_DEVICE_CLOCK,
    SLOT_WORDS,
    UNIX_MINUS_MONO,
    WANTED,
    WARM_UP,
    WINDOW_START,
    WINDOW_STOP,
    Ring,
)
from benchmate.step_parts import StepParts

if TYPE_CHECKING:
    from benchmate.recording import Recording

NEVER = 1 << 62
LOOK_AGAIN_NS = 20_000_000
"""Between two looks at whether the group still needs this task as load."""
AFTER_GO_NS = 100_000_000
"""Further warm-up after the barrier: an instance that waited there finds idle devices and cold caches."""
COST_SAMPLES = 200
CACHE_BYTES = 1 << 20
PREPARED = 256
"""Slots of the ring that are prepared at a time for the steps to come."""
WORKED, NOT_WORKED = 0.5, 0.1
"""Shares of a step's minimum work time: the last step of a loop counts above the first, not below the second."""
MOST_LEFT_FIRST = 10
"""Loops in a row that are left in their first step, before there is any other to compare it with."""
MOST_UNCLEAR = 3, 0.01
"""Steps left half way through: more than this number, and more than this share of all, make the number of items uncertain."""
TASKS = ("train", "validation", "inference")

T = TypeVar("T")
Words: TypeAlias = "memoryview[int]"
Copies: TypeAlias = tuple[Words, Words, Words, int, int, int, int, int | float, int, bool]


class Loop:
    """A loop over an observed iterable, known by the place in the program that asks for its batches."""

    __slots__ = ("__weakref__", "place")

    def __init__(self) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "benchmate":
            frame = frame.f_back
        self.place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"

    def __str__(self) -> str:
        return f"the loop at {self.place}"


class Observer:
    """The observations of a task: any number of loops feed it in sequence.

    `until` and `need` are the loop's limits for each step. `_advance` is called when both are reached, which is at each
    step of the warm-up and at the end of the window, and moves on from warm-up to window to the end.
    """

    def __init__(self, session: Recording, task: str, units: str, stop: bool | None) -> None:
        if task not in TASKS:
            raise BenchmateError(f"task={task!r}: expected one of {', '.join(TASKS)}")
        self._session = session
        self._measure = measure = session.config.measure
        self.task = task
        self.stopping = (task == "train" and session.stop_exception is not None) if stop is None else stop
        self._writer = ObservationWriter(session.open_ring(task, units, "rate"))
        self.ring.words[WANTED] = measure.window_steps
        self._answers = session.answers if task == "train" and self.stopping else None
        self.is_answering = False
        """Whether the loop should make the first steps of the program again, now that the window is complete."""
        self.is_complete = False
        self.is_over = False
        """Whether loops should end now: the window is complete and there is no runner to end the program."""
        self._consensus = RankConsensus(task, session.rank, session.world_size)
        self._measured = 0
        self.until = 0
        self.need = 0
        self._advance: Callable[[int], None] = self._after_first_step
        # At a barrier every instance must wait, and needs a step to wait with: the first step at least is warm-up.
        self._flags = WARM_UP if measure.warmup_steps or measure.warmup_s or measure.barrier else 0
        self._warm = 0
        """Observations of the warm-up."""
        self._first_end_ns = 0
        self._window_start_ns = 0
        self._loop: object | None = None
        """The loop that began last, or the source that ended the last step without a loop."""
        self._superseded: WeakValueDictionary[int, object] = WeakValueDictionary()
        """The sources of earlier steps' ends, since a loop began, by their ids: an optimizer need not be hashable."""
        self.paused_ns = session.paused_ns
        """Begin of the open pause, 0 without a pause: steps within it do not count."""
        self._left_first = self._unclear = 0
        self._is_looping = False
        self.begun: tuple[int, int, bool] | None = None
        """Of the loop whose iterator was made last: `count`, the time, and whether the device was marked, just before."""
        self._copied_to: object | None = None
        """The loop whose local variables hold the state of this observer. None as soon as that has changed."""
        self._is_closed = False
        self._is_drained = True
        """Whether the window began with nothing on its way to a device without events. Then it ends so, too."""

    @property
    def ring(self) -> Ring:
        """The ring that holds the observations."""
        return self._writer.ring

    @property
    def count(self) -> int:
        """Observations, warm-up included."""
        return self._writer.count

    # In the loop

    def record(self, t0_ns: int, end_ns: int, n: int | float, wait_ns: int, flags: int) -> None:
        """Take a step: from `t0_ns` to `end_ns`, n items, `wait_ns` of this time waiting for data (-1: unknown)."""
        self._copied_to = None
        if self.paused_ns and t0_ns >= self.paused_ns:
            return
        writer = self._writer
        ring = writer.ring
        head = ring.words[HEAD]
        count = head + writer.ahead
        if head < writer.direct:
            ring.write(count, t0_ns, end_ns - t0_ns, n, NO_DEVICE_CLOCK, 1, flags | self._flags, wait_ns)
        else:
            writer.gather(count, t0_ns, end_ns, n, wait_ns, flags | self._flags)
        if end_ns >= self.until and count + 1 >= self.need:
            self._advance(end_ns)

    def record_parts(self) -> StepParts | None:
        """Record the parts of each step from the next one on. Return None when that is done already."""
        if self._writer.parts is not None:
            return None
        self._copied_to = None
        return self._writer.record_parts()

    def settled(self, end_ns: int) -> int:
        """Return when the step that ended at `end_ns` was done on the device, if it is the last of the window."""
        if self._advance != self._at_window_end or self.task in self._session.satisfied:
            return end_ns
        if self._writer.wait_for_step():
            return perf_counter_ns()
        if self._is_drained and "jax" in sys.modules:
            wait_for_devices()
            return perf_counter_ns()
        return end_ns

    # From warm-up to window to the end

    def _after_first_step(self, end_ns: int) -> None:
        self._first_end_ns = end_ns
        self._session.first_step(end_ns)
        self._writer.look_for_device()
        self._advance = self._in_warm_up
        if self._flags == 0:
            self._begin_window(0)
            _, first_host_ns = self._writer.last_interval()
            self._window_start_ns = self.ring.words[WINDOW_START] = end_ns - first_host_ns
        else:
            self._in_warm_up(end_ns)

    def _in_warm_up(self, end_ns: int) -> None:
        # At each step: a program may first touch its device in any of them.
        self._writer.look_for_device()
        measure = self._measure
        least = measure.warmup_steps if self._answers is None else max(measure.warmup_steps, self._answers.steps)
        if self.count < least or end_ns - self._first_end_ns < measure.warmup_s * 1e9:
            return
        if measure.barrier and not self._session.passed_barrier:
            self._writer.settle()
            wait_for_devices()
            self._session.wait_for_go()
            self.until = perf_counter_ns() + AFTER_GO_NS
            # One step at least after the barrier, however long a step is.
            self.need = self.count + 1
        else:
            self._begin_window(self.count)

    def _begin_window(self, warm: int) -> None:
        """Measure from here. The first `warm` steps were warm-up."""
        self._warm = warm
        self._writer.settle()
        self._flags = 0
        # Where steps are kept a bounded number ahead, waiting would leave the device idle, so that the first steps of the window
        # seem to take no time: the device is as far behind at the beginning as it is at the end.
        self._is_drained = not self._writer.is_lagging
        if self._is_drained:
            wait_for_devices()
        self._session.begin_window()
        start_ns = perf_counter_ns()
        self._window_start_ns = self.ring.words[WINDOW_START] = start_ns
        self.need = self._warm + max(1, self._measure.window_steps)
        self.until = start_ns + round(self._measure.window_s * 1e9)
        self._advance = self._at_window_end

    def begin_pause(self, start_ns: int) -> None:
        """Count no step that begins from here on, until the pause has ended."""
        self.paused_ns, self._copied_to = start_ns, None

    def end_pause(self, pause_ns: int) -> None:
        """Measure so much longer, where there is a window: a pause is no part of its seconds."""
        self.paused_ns = 0
        if self._advance == self._at_window_end and not self.is_complete:
            self.until += pause_ns

    def _at_window_end(self, end_ns: int) -> None:
        if self.stopping and self._session.runs_on(self.task, self.ring):
            self.until = end_ns + LOOK_AGAIN_NS
            return
        self._end_window(end_ns, "complete")
        if self.stopping:
            # From here on every step ends the program, should the script swallow what ends it.
            self.need = self.until = 0
            self._advance = self._stop
            self._stop(end_ns)
        else:
            self.need = self.until = NEVER  # a task that does not stop is observed to its own end

    def _stop(self, end_ns: int) -> None:
        answers = self._answers
        if answers is not None and answers.is_due and (self._is_looping or answers.is_fed):
            # Every rank begins them at the same step.
            self.is_answering = self._ranks_may_stop(do_meet=False)
        elif self._ranks_may_stop():
            self.is_over = self._session.stop(f"{self.task}: {self._measured} observations")

    def end_answers(self) -> None:
        """End the program, whose first steps have been made again."""
        self.is_answering = False
        self._stop(0)

    def _ranks_may_stop(self, *, do_meet: bool = True) -> bool:
        try:
            if not self._consensus.may_stop(self.count):
                return False
            if do_meet:
                self._consensus.meet()
            return True
        except Exception as error:  # the store of a process group that is shutting down
            self._session.message(
                f"{self.task}: cannot agree with the other ranks on the last step: {error}", once=True
            )
            return True

    def _end_window(self, end_ns: int, why: str) -> None:
        if self.is_complete or self._window_start_ns == 0:
            return
        self.is_complete = True
        self._measured = observed = self.count - self._warm
        self._writer.settle()
        words, offset = self.ring.words, self.ring.words[UNIX_MINUS_MONO]
        start_ns = self._window_start_ns
        words[WINDOW_STOP] = end_ns
        window = {**window_record(start_ns, end_ns, offset, why), "pid": os.getpid()}
        self._session.record("data", {"task": self.task, **self._session.rank_label, "window": window})
        if self._session.rank_label and self.stopping:
            self._session.record_collectives(self.task, self._writer.ends_since(start_ns), offset)
        wanted = self._measure.window_steps
        progress = [observed, max(observed, wanted) if why == "complete" else wanted]
        self._session.record("data", {"task": self.task, "progress": progress})

    # Around the loop

    def stop_again(self) -> bool:
        """Return whether a loop should end before it begins. End a program again that caught the exception to end it."""
        if not self.is_complete or not self.stopping:
            return False
        self._stop(0)
        return self.is_over

    def begin_loop(self) -> None:
        """Begin the first step of a loop, whose iterator is made next: to start a loader's workers is part of that step."""
        is_marked = not self._is_looping
        if is_marked:
            self._writer.mark_begin()
        self.begun = self.count, perf_counter_ns(), is_marked

    def _begin_step(self) -> int:
        """Begin the first step of a loop, now or when its iterator was made, unless another step ended since."""
        begun, self.begun = self.begun, None
        if begun is None or begun[0] != self.count:
            begun = self.count, perf_counter_ns(), False
        if not begun[2]:
            self._writer.mark_begin()
        return begun[1]

    def iterate(  # noqa: PLR0915  (the loop is written out, because each call in it costs)
        self, iterable: Iterable[T], batch_size: BatchSize = None
    ) -> Generator[T, None, None]:
        """Yield the items of `iterable`, observing each step: from a request for a batch to the next.

        The step in which the loop is left counts, too, where it has worked on its batch. No step within a pause counts.
        """
        if self.stop_again():
            return
        size, n = size_function(batch_size, iterable, partial(self._session.message, once=True))
        if self.paused_ns:
            iterable = iter(iterable)
            for batch in iterable:
                yield batch
                if not self.paused_ns:
                    break
            else:
                return
        if self._answers is not None:
            iterable = self._answers.keep(iterable)
        me = self._loop = Loop()
        self._superseded.clear()
        writer, clock, arrived_ns = self._writer, perf_counter_ns, 0
        began_ns: int | None = None
        head_word = HEAD
        t0_ns = self._begin_step()
        words, ends, arrivals, slot, last_slot, head, last_head, usual_n, until, has_marks = self._copies(me, n, t0_ns)
        count_before = self.count
        self._is_looping = True
        try:
            for batch in iterable:
                fetched_ns = clock()
                if began_ns is not None:
                    # `record` and `Ring.write` written out, with the words that differ from step to step: a call, and each
                    # cache line touched, has a visible cost after a training step has emptied the caches.
                    if slot < last_slot and self._copied_to is me:
                        ends[slot] = t0_ns
                        arrivals[slot] = arrived_ns
                        slot += 8
                        words[head_word] = head = head + 1
                    else:
                        self._record_unless_overlapped(me, began_ns, t0_ns, n, arrived_ns - began_ns, 0)
                        words, ends, arrivals, slot, last_slot, head, last_head, usual_n, until, has_marks = (
                            self._copies(me, n, t0_ns)
                        )
                if size is not None:
                    try:
                        n = size(batch)
                    except Exception as error:
                        n = self._size_unknown(error)
                    if n != usual_n and slot < last_slot:
                        if type(n) is int:
                            words[slot + 3] = n
                        else:
                            last_slot = slot
                arrived_ns = fetched_ns
                began_ns = t0_ns
                if has_marks and writer.parts is not None:
                    writer.parts.begin()
                yield batch
                del batch  # the program may have dropped it, to make room for the next
                if has_marks:
                    writer.mark_end()
                t0_ns = clock()
                if t0_ns >= until and head >= last_head:
                    # A step of the warm-up, or the last of the window: recorded before another batch is fetched.
                    step_ns, began_ns = began_ns, None
                    self._record_unless_overlapped(me, step_ns, self.settled(t0_ns), n, arrived_ns - step_ns, 0)
                    if self.is_answering and self._answers is not None:
                        yield from self._answers.again()
                        self.end_answers()
                    if self.is_over:
                        return
                    words, ends, arrivals, slot, last_slot, head, last_head, usual_n, until, has_marks = self._copies(
                        me, n
                    )
                    t0_ns = clock()
                    if has_marks:
                        writer.mark_begin()
        except BaseException as error:
            # The loader raised: the step before it is complete. (A loop that is left ends at `yield`, in the middle of one.)
            if began_ns is not None and began_ns != t0_ns:
                self._record_unless_overlapped(me, began_ns, t0_ns, n, arrived_ns - began_ns, 0)
            elif began_ns is not None and type(error) is GeneratorExit and not self._is_closed:
                self._record_last(me, began_ns, n, arrived_ns, is_first=self.count == count_before)
            raise
        finally:
            self._is_looping = False
        if began_ns is not None:
            self._record_unless_overlapped(me, began_ns, t0_ns, n, arrived_ns - began_ns, EPOCH_END)
        elif self.count:
            writer.mark_epoch_end()
        else:
            self._session.message(f"{self.task}: a loader yielded nothing", once=True)
        writer.flush(RESERVE)
        self._session.drain(self.ring)

    def _copies(self, me: object, n: int | float, t0_ns: int = 0) -> Copies:
        """Return the values that the loop `me` needs at each step, for its local variables.

        Valid as long as `_copied_to` is `me`. Where the next step, which begins at `t0_ns`, continues the last entry,
        slots are prepared for steps of `n` items.
        """
        self._copied_to = me
        writer = self._writer
        ring = writer.ring
        head = ring.words[HEAD]
        slot = room = 0  # the next step goes through `record`
        if (
            not self.paused_ns
            and head < writer.direct
            and self.until
            and type(n) is int
            and head
            and ring.end_ns(head - 1) == t0_ns
        ):
            index = head % ring.capacity
            slot = FIRST_SLOT + index * SLOT_WORDS
            # Up to the ring's end, where the next slot is the first again, or what may be written without looking at the reader.
            room = min(PREPARED, ring.capacity - index, writer.direct - head)
            ring.prepare(slot, room, n, self._flags)
        return (
            ring.words,
            ring.ends,
            ring.arrivals,
            slot,
            slot + room * SLOT_WORDS,
            head,
            self.need - writer.ahead - 1,
            n,
            self.until,
            writer.has_marks,
        )

    def _record_unless_overlapped(
        self, me: object, t0_ns: int, end_ns: int, n: int | float, wait_ns: int, flags: int
    ) -> None:
        # A program's threads may go on while the observer is closed and its cost is measured.
        if self._loop is me or self._is_closed:
            self.record(t0_ns, end_ns, n, wait_ns, flags)
            return
        # Something else ended steps of this task inside this step: its time would count twice.
        other, self._loop = self._loop, me
        self._refuse(
            f"{_name(other)} ends steps inside a step of {me}, so both count the same time. Observe only one of them: write "
            "`when=lambda loader: ...` (true for it alone) in the probe, or `probes.pause` for a validation"
        )

    def _record_last(self, me: Loop, began_ns: int, n: int | float, arrived_ns: int, *, is_first: bool) -> None:
        """Take the step in which a loop is left, if it has worked on its batch.

        The first step of a loop may only be a look at the data. The window that the step completes is found at the next:
        nothing can be raised from here.
        """
        end_ns, writer = perf_counter_ns(), self._writer
        usual_ns = writer.least_work_ns()
        share = (end_ns - arrived_ns) / usual_ns if usual_ns else 0.0
        need, self.need = self.need, NEVER
        if self._loop is not me:
            pass  # an iterator that was kept while another loop went on
        elif share >= WORKED:
            if writer.has_marks:
                writer.mark_end()
            self.record(began_ns, end_ns, n, arrived_ns - began_ns, EPOCH_END)
        elif is_first:
            self._left_first += self.count == 0
        elif share > NOT_WORKED:
            self._unclear += 1
        self.need = need
        least, most = MOST_UNCLEAR
        if self._left_first > MOST_LEFT_FIRST or (self._unclear > least and self._unclear > most * self.count):
            what = "in its first step" if self._left_first else "half way through a step"
            self._refuse(
                f"{me} is left {what} repeatedly, so it is unknown which batches count. Count steps where they "
                'end: write `probes.calls(ov, "__main__.FUNCTION", units=..., items=...)` or `probes.optimizer_step(ov, ...)`',
                can_raise=False,
            )

    def _refuse(self, why: str, *, can_raise: bool = True) -> None:
        """Fail the step with a sentence, and end the program: here, or at the next step.

        A validation is not the benchmark's number: there the sentence is a message. A script of its own is not ended.
        """
        if self.task == "validation":
            self._session.message(f"{self.task}: {why}", once=True)
            return
        self._session.refuse(f"{self.task}: {why}")
        if self._session.stop_exception is None:
            return
        # From here on every step ends the program.
        self.is_complete, self.need, self.until = True, 0, 0
        self._advance = self._give_up
        if can_raise:
            self._give_up(0)

    def _give_up(self, end_ns: int) -> None:
        self.is_over = self._session.stop(f"{self.task}: its steps cannot be counted")

    def fed_by(self, source: object) -> None:
        """Take note that a step is ended by `source`, not by the previous step's source: two in turn would count items twice."""
        if self._superseded.get(id(source)) is source and not self._is_closed:
            self._refuse(
                f"{_name(self._loop)} and {_name(source)} end steps in turn, so items count twice. Let one of them end steps: "
                "write `items=lambda optimizer: ...`, which is None for the other, or keep one probe for the task"
            )
        if self._loop is not None:
            self._superseded[id(self._loop)] = self._loop
        self._loop = source

    def begin_step(self, source: object) -> int:
        """Begin a step, for a loop that cannot be wrapped, whose steps `source` ends. Return when it began."""
        self._loop = source
        self._superseded.clear()
        self._writer.mark_begin()
        return perf_counter_ns()

    def end_step(self, last_ns: int | None, n: int | float, result: object, source: object) -> int | None:
        """End a step that began at `last_ns` and gave `result`, for a loop that cannot be wrapped. Return when it ended.

        `last_ns` is None where the begin is unknown: such a step is not recorded. Within a pause no step ends.
        """
        if self.paused_ns or self.is_answering:
            return last_ns
        if self._loop is not source:
            self.fed_by(source)
        writer = self._writer
        has_marks = writer.has_marks
        if has_marks:
            writer.mark_end(result)
        end_ns = begin_ns = perf_counter_ns()
        if last_ns is None:
            self._session.first_step(end_ns)
            writer.look_for_device()
            writer.mark_begin()
        elif end_ns >= self.until and self.count + 1 >= self.need:
            self.record(last_ns, self.settled(end_ns), n, -1, 0)
            begin_ns = perf_counter_ns()
            writer.mark_begin()
        else:
            self.record(last_ns, end_ns, n, -1, 0)
        if has_marks and writer.parts is not None:
            writer.parts.begin()
        return begin_ns

    def _size_unknown(self, error: Exception) -> int:
        """Refuse a loop when the number of items of a batch cannot be determined."""
        # A function of the voirfile's author may raise anything.
        self._refuse(
            f"{error}" if isinstance(error, BatchSizeError) else f"batch_size: {type(error).__name__}: {error}"
        )
        return 0

    # After the program

    def close(self) -> None:
        """Complete open entries: the program has ended."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._window_start_ns and not self.is_complete:
            end_ns = sum(self._writer.last_interval())
            has_all = self.task in self._session.satisfied or (self.count >= self.need and end_ns >= self.until)
            self._end_window(end_ns, "complete" if has_all else "ended")
        elif self.count and not self.is_complete:
            self._session.message(f"{self.task}: ended during warm-up, after {self.count} steps: nothing was measured")
        self._writer.settle()
        self._session.drain(self.ring)
        self.ring.close()

    def detach(self) -> None:
        """Let running loops continue unrecorded, in a ring without a reader: for a forked child."""
        self._copied_to = None
        self._writer.detach()
        self.stopping = False
        self._is_closed = True

    def cost_s(self) -> float:
        """Return the host seconds that observing took: the steps times the cost of a step, measured now. Call it last."""
        if self.count == 0:
            return 0.0
        steps, writer = self.count, self._writer
        is_direct, lag_cost_ns = writer.direct > 0, writer.lag_cost_ns
        writer.leave_reader()  # no entry of the samples may reach the reader
        if not is_direct:
            writer.direct = -1
        self._copied_to, self.stopping = None, False
        self.need = self.until = NEVER
        loop, other_data, samples = self.iterate(repeat(None), 1), bytearray(CACHE_BYTES), []
        next(loop)
        for _ in range(COST_SAMPLES):
            bytes(
                other_data
            )  # empties the caches, as a training step does: what follows takes up to four times as long
            begin_ns = perf_counter_ns()
            next(loop)
            samples.append(perf_counter_ns() - begin_ns)
        loop.close()
        return (steps * sorted(samples)[COST_SAMPLES // 2] + lag_cost_ns) / 1e9


def _name(source: object) -> str:
    """Return the source of steps' ends, in words."""
    return str(source) if isinstance(source, Loop) else f"the {type(source).__name__}"
