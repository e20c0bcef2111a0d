"""Helpers for tests and benchmarks of several processes; they need torch.distributed."""

import os

_local_rank = None


def init_dist(local_rank: int, num_local_ranks: int):
    """Joins the processes of MASTER_ADDR:MASTER_PORT (default 127.0.0.1:8361), where WORLD_SIZE counts nodes and RANK
    is the node's number. Returns (rank, number of ranks, group), and makes CUDA and bfloat16 torch's defaults."""
    global _local_rank
    import torch
    import torch.distributed as dist

    address, port = os.environ.get('MASTER_ADDR', '127.0.0.1'), os.environ.get('MASTER_PORT', '8361')
    nodes, node = int(os.environ.get('WORLD_SIZE', '1')), int(os.environ.get('RANK', '0'))
    _local_rank = local_rank
    torch.cuda.set_device(local_rank)
    dist.init_process_group(
        'nccl',
        init_method=f'tcp://{address}:{port}',
        world_size=nodes * num_local_ranks,
        rank=node * num_local_ranks + local_rank,
    )
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device('cuda')
    return dist.get_rank(), dist.get_world_size(), dist.new_group(list(range(nodes * num_local_ranks)))


def uneven_all_gather(tensor, dim: int = 0, group=None):
    """Every rank's tensor, one after the other along `dim`, in which their sizes may differ."""
    import torch
    import torch.distributed as dist

    ranks = dist.get_world_size(group)
    size = torch.tensor([tensor.shape[dim]], device=tensor.device, dtype=torch.int64)
    sizes = [torch.zeros_like(size) for _ in range(ranks)]
    dist.all_gather(sizes, size, group=group)
    sizes = [int(s) for s in sizes]
    padded_shape = list(tensor.shape)
    padded_shape[dim] = max(sizes)
    padded = torch.zeros(padded_shape, dtype=tensor.dtype, device=tensor.device)
    padded.narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
    parts = [torch.empty_like(padded) for _ in range(ranks)]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part.narrow(dim, 0, n) for part, n in zip(parts, sizes)], dim=dim)


def dist_print(s: str = '', once_in_node: bool = False):
    """Prints on every rank, or on the first of each node, and waits for all."""
    import torch.distributed as dist

    if not once_in_node or _local_rank in (0, None):
        print(s, flush=True)
    dist.barrier()
