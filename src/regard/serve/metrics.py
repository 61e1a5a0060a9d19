"""What a server counts, in Prometheus' text format (version 0.0.4)."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping

from regard.serve.engines import Engines

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
FIRST_TOKEN, WHOLE = "regard_time_to_first_token_seconds", "regard_request_seconds"
REQUESTS = "regard_requests_total"
HELP = {
    REQUESTS: ("counter", "Requests answered, by route and status."),
    FIRST_TOKEN: ("histogram", "From a request's arrival to the first token chosen for it."),
    WHOLE: ("histogram", "From a request's arrival to the end of its answer."),
    "regard_answers_total": ("counter", "Answers by how they ended."),
    "regard_refused_total": ("counter", "Requests refused because there was no room."),
    "regard_steps_total": ("counter", "Steps of the scheduler."),
    "regard_prompt_tokens_total": ("counter", "Tokens of prompts."),
    "regard_reused_tokens_total": ("counter", "Tokens of prompts that were not read again."),
    "regard_generated_tokens_total": ("counter", "Tokens written."),
    "regard_slots": ("gauge", "Texts that can be written side by side."),
    "regard_slots_busy": ("gauge", "Texts being written."),
    "regard_waiting": ("gauge", "Answers wanted that wait for a slot."),
    "regard_cache_bytes_most": ("gauge", "What keys and values take when every slot is full."),
}
Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Mapping[str, str], float]


class Metrics:
    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = defaultdict(float)
        self._times: dict[tuple[str, Labels], list[float]] = {}  # a count per bucket, the number and the sum of all
        self._lock = threading.Lock()

    def count(self, name: str, **labels: str) -> None:
        with self._lock:
            self._counts[name, key(labels)] += 1

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        with self._lock:
            times = self._times.setdefault((name, key(labels)), [0.0] * (len(BUCKETS) + 2))
            for i, bound in enumerate(BUCKETS):
                times[i] += seconds <= bound
            times[-2] += 1
            times[-1] += seconds

    def text(self, engines: Engines) -> str:
        samples: dict[str, list[str]] = {name: [] for name in HELP}
        with self._lock:
            for (name, labels), value in self._counts.items():
                samples[name].append(line(name, dict(labels), value))
            for (name, labels), times in self._times.items():
                bounds = [*map(str, BUCKETS), "+Inf"]
                samples[name] += [
                    line(f"{name}_bucket", dict(labels) | {"le": bound}, value)
                    for bound, value in zip(bounds, times[:-1], strict=True)
                ]
                samples[name] += [
                    line(f"{name}_sum", dict(labels), times[-1]),
                    line(f"{name}_count", dict(labels), times[-2]),
                ]
        for name, labelled, value in of_engines(engines):
            samples[name].append(line(name, labelled, value))
        return "".join(f"# HELP {n} {HELP[n][1]}\n# TYPE {n} {HELP[n][0]}\n{''.join(s)}" for n, s in samples.items())


def of_engines(engines: Engines) -> Iterable[Sample]:
    """What the schedulers counted."""
    for engine in engines.running():
        counts, model = engine.scheduler.counts(), {"model": engine.name}
        for end in ("finished", "cancelled", "failed"):
            yield "regard_answers_total", model | {"end": end}, getattr(counts, end)
        for name in ("refused", "steps", "prompt_tokens", "reused_tokens", "generated_tokens"):
            yield f"regard_{name}_total", model, getattr(counts, name)
        yield "regard_slots", model, counts.slots
        yield "regard_slots_busy", model, counts.busy
        yield "regard_waiting", model, counts.waiting
        yield "regard_cache_bytes_most", model, engine.scheduler.lanes.most_bytes


def key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def line(name: str, labels: Mapping[str, str], value: float) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    exact = repr(float(value)).removesuffix(".0")
    return f"{name}{{{inside}}} {exact}\n" if inside else f"{name} {exact}\n"
