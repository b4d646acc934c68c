"""Supervise commands on a node: start them, gather their output, end them together with everything they started.

Standard library only, Python 3.8 or later, no import from the rest of milabench: the folder is sent to other machines as it
is. Unaware of benchmarks and of plans. Its protocol is protocol.md. Its standard input is its lease: at its end
everything is ended.

    python -u -I -S agent/__main__.py serve --run-id ID      requests on stdin, frames on stdout
    python -I -S agent/__main__.py facts                     facts about this machine, as JSON
    python -I -S agent/__main__.py sweep MARKER...           end every process that carries any of these run markers
    python -I -S agent/__main__.py left MARKER...            those processes, as JSON
    python -I -S agent/__main__.py files                     requests about files on stdin, a JSON object a line
    python -I -S agent/__main__.py link ...                  an end of a measured connection
    python -I -S agent/__main__.py feature MODULE ...        the answer of a feature's module, as JSON

Nothing polls: it sleeps until a descriptor, a signal or a deadline wakes it. It may share the machine with a measurement, so
output is gathered at most five times a second and observations (the rings) once.
"""
