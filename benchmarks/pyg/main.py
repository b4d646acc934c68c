"""Train PyTorch Geometric's own models on molecules: its data loader, its PNA or SchNet, Adam, the squared error."""

import argparse

import torch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import PNA, SchNet, global_add_pool
from torch_geometric.utils import degree


class PNAEnergy(torch.nn.Module):
    """An embedding of the elements, PNA over the bonds, and the sum of what each atom contributes."""

    def __init__(self, degrees, hidden, layers):
        super().__init__()
        over = {"aggregators": ["mean", "min", "max", "std"], "scalers": ["identity", "amplification", "attenuation"]}
        self.elements = torch.nn.Embedding(10, hidden)
        self.pna = PNA(hidden, hidden, layers, 1, deg=degrees, **over)

    def forward(self, data):
        return global_add_pool(self.pna(self.elements(data.z), data.edge_index), data.batch, data.num_graphs)


class SchNetEnergy(SchNet):
    def forward(self, data):
        return super().forward(data.z, data.pos, data.batch)


def neighbours(pos, batch):
    """Pairs of atoms of one molecule within 5 angstroms; the package's own search needs pyg-lib, which PyPI lacks."""
    near = (torch.cdist(pos, pos) < 5.0) & (batch[:, None] == batch)
    edges = near.fill_diagonal_(False).nonzero().t()
    return edges, (pos[edges[0]] - pos[edges[1]]).norm(dim=-1)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", required=True, help="what prepare.py wrote")
parser.add_argument("--model", choices=("pna", "schnet"), required=True)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
args = parser.parse_args()

torch.manual_seed(1)
device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
molecules = torch.load(args.data, weights_only=False)
if args.model == "pna":
    degrees = torch.bincount(torch.cat([degree(each.edge_index[1], each.num_nodes).long() for each in molecules]))
    model = PNAEnergy(degrees, args.hidden, args.layers).to(device)
else:
    model = SchNetEnergy(args.hidden, args.hidden, args.layers, cutoff=5.0, interaction_graph=neighbours).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:  # the runner ends it
    for molecule_batch in DataLoader(molecules, batch_size=args.batch_size, shuffle=True, drop_last=True):
        batch = molecule_batch.to(device)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch).squeeze(-1), batch.y).backward()
        optimizer.step()
