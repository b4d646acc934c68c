"""The addresses that a machine tells of itself."""

from __future__ import annotations

import pytest

from milabench.execute.agent import host_facts

TRIE = "Local:\n" + "".join(
    f"  |-- {address}\n     /32 host LOCAL\n" for address in ("10.77.15.1", "127.0.0.1", "172.17.0.1", "192.0.2.2")
)


@pytest.mark.parametrize(
    ("sender", "first"), [("192.0.2.2", "192.0.2.2"), ("172.17.0.1", "172.17.0.1"), ("", "10.77.15.1")]
)
def test_the_address_that_a_machine_sends_from_is_the_first_whatever_else_it_has(
    monkeypatch: pytest.MonkeyPatch, sender: str, first: str
) -> None:
    monkeypatch.setattr(host_facts, "read_text", {"/proc/net/fib_trie": TRIE, "/proc/net/if_inet6": ""}.__getitem__)
    monkeypatch.setattr(host_facts, "sender_address", lambda: sender)
    found = host_facts.addresses()
    assert found[0] == first
    assert sorted(found) == ["10.77.15.1", "172.17.0.1", "192.0.2.2"]


def test_the_address_that_this_machine_sends_from_is_one_of_its_own() -> None:
    assert host_facts.sender_address() in {*host_facts.addresses(), ""}
