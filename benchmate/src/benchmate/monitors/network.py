"""What the node has sent and received over its networks."""

from __future__ import annotations

from pathlib import Path

from benchmate.monitors.process_tree import read_kernel_file

# InfiniBand counts in units of four bytes.
WORD = 4


class Network:
    """Sums over all interfaces but loopback, and InfiniBand ports, since this was made."""

    def __init__(self, proc: str = "/proc", infiniband: str = "/sys/class/infiniband") -> None:
        self._path = f"{proc}/net/dev"
        self._ports = sorted(Path(infiniband).glob("*/ports/*/counters"))
        self._start = self._sums()

    def data(self) -> dict[str, int]:
        """`netdata`: bytes, packets, errors and drops; `rdma_*` bytes where there are such ports."""
        return {key: value - self._start.get(key, 0) for key, value in self._sums().items()}

    def _sums(self) -> dict[str, int]:
        names = ("bytes_recv", "packets_recv", "errin", "dropin", "bytes_sent", "packets_sent", "errout", "dropout")
        places = (0, 1, 2, 3, 8, 9, 10, 11)
        sums = dict.fromkeys(names, 0)
        for line in read_kernel_file(self._path).splitlines()[2:]:
            interface, _, rest = line.partition(b":")
            fields = rest.split()
            if interface.strip() != b"lo" and len(fields) > 11:
                for name, place in zip(names, places, strict=True):
                    sums[name] += int(fields[place])
        for port in self._ports:
            for name, file in (("rdma_recv_bytes", "port_rcv_data"), ("rdma_sent_bytes", "port_xmit_data")):
                text = read_kernel_file(f"{port}/{file}").strip()
                if text.isdigit():
                    sums[name] = sums.get(name, 0) + int(text) * WORD
        return sums
