"""The metrics of a server, for Prometheus (text format 0.0.4). Requests are counted here as they end; steps and tokens by
the schedulers, whose counters are read at each scrape.

A server has a registry of its own: the library's default one would add up all servers of a process, and metrics of other
code as well.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from regard.serve.served_models import ServedModels

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
ENDS = ("finished", "cancelled", "failed")
COUNTED = {  # counters of a scheduler
    "refused": "Requests refused because the queue was full.",
    "steps": "Steps of the scheduler.",
    "prompt_tokens": "Tokens of prompts.",
    "reused_tokens": "Tokens of prompts reused from the KV cache.",
    "generated_tokens": "Tokens generated.",
}


class Metrics(Collector):
    def __init__(self, served: ServedModels) -> None:
        self.served, registry = served, CollectorRegistry()
        self.requests = Counter(
            "regard_requests", "Requests answered, by route and status.", ["route", "status"], registry=registry
        )
        self.first_token = Histogram(
            "regard_time_to_first_token_seconds",
            "From a request's arrival to the first token chosen for it.",
            ["model"],
            buckets=BUCKETS,
            registry=registry,
        )
        self.seconds = Histogram(
            "regard_request_seconds",
            "From a request's arrival to the end of its answer.",
            ["route"],
            buckets=BUCKETS,
            registry=registry,
        )
        self.registry = registry

    def text(self) -> bytes:
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        for family in self.registry.collect():
            # *_created are OpenMetrics' and not part of this format
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family
        yield from scheduler_metrics(self.served)


def scheduler_metrics(served: ServedModels) -> list[Metric]:
    """The counters and gauges of all schedulers."""
    answers = CounterMetricFamily("regard_answers", "Answers by how they ended.", labels=["model", "end"])
    counted = {name: CounterMetricFamily(f"regard_{name}", help, labels=["model"]) for name, help in COUNTED.items()}
    slots = GaugeMetricFamily("regard_slots", "Sequences that can be decoded in one batch.", labels=["model"])
    busy = GaugeMetricFamily("regard_slots_busy", "Sequences being decoded.", labels=["model"])
    waiting = GaugeMetricFamily("regard_waiting", "Answers that wait for a slot.", labels=["model"])
    help = "Bytes of the KV cache when every slot is full."
    cache = GaugeMetricFamily("regard_cache_bytes_most", help, labels=["model"])
    for each in served.running():
        counts, model = each.scheduler.counts(), [each.name]
        for end in ENDS:
            answers.add_metric([*model, end], getattr(counts, end))
        for name, family in counted.items():
            family.add_metric(model, getattr(counts, name))
        slots.add_metric(model, counts.slots)
        busy.add_metric(model, counts.busy)
        waiting.add_metric(model, counts.waiting)
        cache.add_metric(model, each.scheduler.slots.max_bytes)
    return [answers, *counted.values(), slots, busy, waiting, cache]
