"""Gauges of a run in the text format of Prometheus, for the textfile collector of node_exporter.

Without time stamps, which the collector refuses. With the name of the run in a single sample only, because each run
would create new series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from milabench.analysis.summary_model import Summary
from milabench.history.gauges import Gauge, gauges
from milabench.shown import visible_line


def exposition(summary: Summary) -> str:
    """Return the text."""
    info = {
        "run": summary.run,
        "version": summary.version,
        "profile": summary.profile,
        "host": _joined(node.get("hostname") or node.get("name") for node in summary.nodes),
        "device": _joined(device.get("name") for device in summary.devices),
    }
    about = Gauge(name="milabench.run.info", suffix="", code="1", text="The run.", samples=((info, 1.0),))
    return "".join(f"{line}\n" for gauge in (about, *gauges(summary)) for line in _lines(gauge))


def _lines(gauge: Gauge) -> Iterator[str]:
    name = "_".join(part for part in (gauge.name.replace(".", "_"), gauge.suffix) if part)
    yield f"# HELP {name} {_escaped(gauge.text)}"
    yield f"# TYPE {name} gauge"
    for labels, value in gauge.samples:
        yield f"{name}{_label_text(labels)} {value!r}"


def _label_text(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{key}="{_quoted(value)}"' for key, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return visible_line(text).replace("\\", "\\\\")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _joined(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value))
