"""What the node has sent and received over its networks."""

from __future__ import annotations

from pathlib import Path

from benchmate.monitors.process_tree import read_kernel_file

INFINIBAND_WORD = 4
"""InfiniBand counts in units of four bytes."""
# The columns of /proc/net/dev that are recorded.
COLUMNS = {
    "bytes_recv": 0,
    "packets_recv": 1,
    "errin": 2,
    "dropin": 3,
    "bytes_sent": 8,
    "packets_sent": 9,
    "errout": 10,
    "dropout": 11,
}


class Network:
    """Sums over all interfaces but loopback, and InfiniBand ports, since the first reading."""

    def __init__(self, proc: str = "/proc", infiniband: str = "/sys/class/infiniband") -> None:
        self._path = f"{proc}/net/dev"
        self._ports = sorted(Path(infiniband).glob("*/ports/*/counters"))
        self._start = self._sums()

    def data(self) -> dict[str, int]:
        """Return `netdata`: bytes, packets, errors and drops; `rdma_*` bytes where there are such ports."""
        return {key: value - self._start.get(key, 0) for key, value in self._sums().items()}

    def _sums(self) -> dict[str, int]:
        sums = dict.fromkeys(COLUMNS, 0)
        for line in read_kernel_file(self._path).splitlines()[2:]:
            interface, _, rest = line.partition(b":")
            fields = rest.split()
            if interface.strip() != b"lo" and len(fields) > 11:
                for name, column in COLUMNS.items():
                    sums[name] += int(fields[column])
        for port in self._ports:
            for name, file in (("rdma_recv_bytes", "port_rcv_data"), ("rdma_sent_bytes", "port_xmit_data")):
                text = read_kernel_file(f"{port}/{file}").strip()
                if text.isdigit():
                    sums[name] = sums.get(name, 0) + int(text) * INFINIBAND_WORD
        return sums
