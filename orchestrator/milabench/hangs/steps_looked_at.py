"""The evidence of a step: collected now on the nodes of a running step, or as stored for a hung step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from milabench import seams
from milabench.devices.regular_file import read_regular
from milabench.errors import NothingSelected, RecordError, Unreachable
from milabench.events.run_files import evidence_name
from milabench.events.rundir import Run
from milabench.events.values import as_mapping, mappings_in
from milabench.execute.agent_client import query_agent
from milabench.execute.messages import EVIDENCE, InvalidMessage
from milabench.execute.remote_host import node_marker
from milabench.execute.ssh import Address
from milabench.records.hang_evidence import JobMember, NodeEvidence
from milabench.workflow.options import Session
from milabench.workflow.run_lookup import RunHandle, attempts_made, find_step, resolve_run

Members = list[JobMember]


def looked_at(step: str, run: str | None, base: Path | None, session: Session) -> Members:
    """Return the steps of a step's job with their evidence.

    Raises NothingSelected for a step that neither runs nor hung, Unreachable where a node does not answer.
    """
    handle = resolve_run(base, run)
    name, _ = find_step(handle.run, step)
    planned = {
        str(each.get("id")): each for each in mappings_in(as_mapping(handle.run.manifest.get("plan")).get("steps"))
    }
    job = as_mapping(planned.get(name)).get("job")
    members = [each for each in planned.values() if each.get("id") == name or (job and each.get("job") == job)]
    running = {tried.step for tried in handle.running}
    if name in running:
        return session.hosts.run(
            partial(_looked_at_now, handle, [each for each in members if each["id"] in running], session)
        )
    kept = [_member(each, evidence) for each in members if (evidence := kept_evidence(handle.run, each["id"]))]
    if not kept:
        raise NothingSelected(f"{handle.run.name}: {name} does not run, and has left no evidence of a hang")
    return kept


def kept_evidence(run: Run, step: str) -> NodeEvidence | None:
    """Return the evidence of the last attempt at a step. None where there is none. Raises RecordError."""
    path = run.path / evidence_name(run.stem(step, attempts_made(run, [step])[step]))
    try:
        return EVIDENCE.read(read_regular(path))
    except OSError:
        return None
    except InvalidMessage as error:
        raise RecordError(f"{path}: {error}") from None


def _member(planned: Mapping[str, Any], evidence: NodeEvidence) -> JobMember:
    devices = planned.get("devices")
    numbers = tuple(each for each in devices if isinstance(each, int)) if isinstance(devices, list) else ()
    return JobMember(
        step=str(planned["id"]), node=str(planned.get("node") or "local"), devices=numbers, evidence=evidence
    )


async def _looked_at_now(handle: RunHandle, members: Sequence[Mapping[str, Any]], session: Session) -> Members:
    """Look at running steps, on all nodes at the same time."""
    holders = [handle.holder] if handle.holder else [*handle.workers.values()]
    used: dict[str, Address] = {}
    for entry in handle.run.journal:
        if entry.get("run") == "started":
            used |= {str(node.get("name")): Address(**node) for node in mappings_in(entry.get("nodes"))}

    async def look(planned: Mapping[str, Any]) -> JobMember:
        node = str(planned.get("node"))
        words = ["feature", seams.module_on_nodes("collector"), "--step", str(planned["id"])]
        (holder, *_) = holders
        if node in used:
            machine = session.hosts.machine(used[node])
            return _member(planned, await machine.ask(EVIDENCE, *words, "--marker", node_marker(holder.marker, node)))
        if not holder.is_local:
            raise Unreachable(f"{planned['id']}: it runs on {holder.host}: call `milabench stacks` there")
        return _member(planned, await query_agent(EVIDENCE, *words, "--marker", holder.marker))

    return list(await asyncio.gather(*map(look, members)))
