"""DLRM with cross layers (the second version of MLPerf) trained by TorchRec's own model, sharding and pipeline."""

import argparse
import json
import os
from itertools import cycle

import torch
from torch import distributed
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.datasets.random import RandomRecDataset
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.train_pipeline import TrainPipelineBase, TrainPipelineSparseDist
from torchrec.models.dlrm import DLRM_DCN, DLRMTrain
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper

OPTIONS = ("tables", "rows", "dim", "ids-per-feature", "cross-rank", "bottom", "top", "batch-size", "batches", "seed")
DENSE_FEATURES = 13  # of Criteo's data, which has 26 sparse ones


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in OPTIONS:
        parser.add_argument(f"--{name}", type=json.loads, required=True)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    alone = {} if "RANK" in os.environ else {"store": distributed.HashStore(), "rank": 0, "world_size": 1}
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", **alone)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    names = [f"feature_{number}" for number in range(args.tables)]
    size = {"num_embeddings": args.rows, "embedding_dim": args.dim}
    tables = [EmbeddingBagConfig(name=f"table_{name}", feature_names=[name], **size) for name in names]
    sparse = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    network = DLRM_DCN(sparse, DENSE_FEATURES, [*args.bottom, args.dim], [*args.top, 1], 3, args.cross_rank, device)
    apply_optimizer_in_backward(torch.optim.Adagrad, sparse.parameters(), {"lr": 0.01})
    wrapped = DLRMTrain(network)
    model = DistributedModelParallel(wrapped, device=device, plan=planner(device).collective_plan(wrapped))
    dense = {name: parameter for name, parameter in model.named_parameters() if "embedding_bags" not in name}
    own = KeyedOptimizerWrapper(dense, lambda parameters: torch.optim.Adagrad(parameters, lr=0.01))
    optimizer = CombinedOptimizer([model.fused_optimizer, own])
    pipeline = (TrainPipelineSparseDist if device.type == "cuda" else TrainPipelineBase)(model, optimizer, device)
    ids = {"hash_size": args.rows, "ids_per_feature": args.ids_per_feature, "min_ids_per_feature": args.ids_per_feature}
    ids |= {"num_batches": args.batches, "num_generated_batches": args.batches, "num_dense": DENSE_FEATURES}
    batches = list(RandomRecDataset(names, args.batch_size, **ids, manual_seed=args.seed + distributed.get_rank()))
    for batch in batches:  # drawn labels could only be learned by heart
        batch.labels = (batch.dense_features[:, 0] > 0).int()
    stream = cycle(batches)
    while True:
        train(pipeline, stream, args.batch_size)


def planner(device):
    """TorchRec's, told how much memory there is: it takes every device for one of 32 GiB."""
    ranks = distributed.get_world_size()
    known = {} if device.type == "cpu" else {"hbm_cap": torch.cuda.get_device_properties(device).total_memory}
    local = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    return EmbeddingShardingPlanner(topology=Topology(ranks, device.type, local_world_size=local, **known))


def train(pipeline, stream, size):
    return pipeline.progress(stream)[0]  # the loss; what follows are predictions and labels


if __name__ == "__main__":
    main()
