"""The training of the benchmark in PyTorch: a loop over replicas, and ``torch.func.vmap``.

A step is jaxlossy's: every worker draws a batch with replacement from its shard and takes a step
of plain SGD, then RPS averages the replicas. Every packet is lost on its own, each way, and the
servers are other machines (``placement='separate'``, as many servers as packets). Both programs
draw the same batches and losses, and ``tests/test_torch_rivals.py`` holds both steps to jaxlossy's.
"""

import copy
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]  (only benchmarks need it)
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.func import functional_call, grad, vmap  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

CLASSES = 10
EXAMPLES = 1900
#: As flax: torch's own is 1e-5.
EPSILON = 1e-6


class MLP(nn.Module):
    """``jaxlossy.models.MLP``."""

    def __init__(self, shape: Sequence[int], features: Sequence[int]):
        super().__init__()
        widths = [math.prod(shape), *features, CLASSES]
        self.layers = nn.ModuleList(map(nn.Linear, widths[:-1], widths[1:]))

    def forward(self, x):
        x = self.layers[0](x.flatten(1))
        for layer in self.layers[1:]:
            x = layer(F.relu(x))
        return x


def group_norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(math.gcd(width, 8), width, eps=EPSILON)


class CNN(nn.Module):
    """``jaxlossy.models.CNN``, over one or two spatial axes; channels last, as there."""

    def __init__(self, shape: Sequence[int], features: Sequence[int]):
        super().__init__()
        flat = len(shape) == 2
        conv, pool = (nn.Conv1d, nn.MaxPool1d) if flat else (nn.Conv2d, nn.MaxPool2d)
        layers, width = [], shape[-1]
        for new in features:
            layers += [conv(width, new, 3, padding=1), group_norm(new), nn.ReLU(), pool(2)]
            width = new
        self.layers, self.dense = nn.Sequential(*layers), nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.dense(self.layers(x.movedim(-1, 1)).flatten(2).mean(2))


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut without parameters (He et al.'s option A)."""

    def __init__(self, width: int, new: int):
        super().__init__()
        self.stride, self.more = new // width, (new - width) // 2
        self.conv1 = nn.Conv2d(width, new, 3, stride=self.stride, padding=1, bias=False)
        self.norm1 = group_norm(new)
        self.conv2 = nn.Conv2d(new, new, 3, padding=1, bias=False)
        self.norm2 = group_norm(new)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.more:
            more = (self.more, self.more)
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, *more))
        return F.relu(x + y)


class ResNet20(nn.Module):
    """ResNet-20 for CIFAR (He et al., 1512.03385) with GroupNorm: 269,722 parameters for RGB."""

    def __init__(self, shape: Sequence[int]):
        super().__init__()
        widths = [16, *(width for width in (16, 32, 64) for _ in range(3))]
        self.conv = nn.Conv2d(shape[-1], 16, 3, padding=1, bias=False)
        self.norm = group_norm(16)
        self.blocks = nn.Sequential(*map(Block, widths[:-1], widths[1:]))
        self.dense = nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x.movedim(-1, 1))))
        return self.dense(self.blocks(x).flatten(2).mean(2))


#: Name to module, from the shape of an example (channels last) and the widths of hidden layers.
TORCH_MODELS: dict[str, Callable[[Sequence[int], Sequence[int]], nn.Module]] = {
    "mlp": MLP,
    "cnn": CNN,
    "resnet20": lambda shape, features: ResNet20(shape),  # its widths are its own
}


def load(model: nn.Module, params: Any) -> None:
    """Copies the parameters of a flax module that has the same layers, under flax's own names.

    Args:
      params: arrays of the host; convolution kernels may have their leading axes flattened.
    """
    names = {
        nn.Linear: "Dense",
        nn.Conv1d: "Conv",
        nn.Conv2d: "Conv",
        nn.GroupNorm: "GroupNorm",
    }
    counts = dict.fromkeys(names.values(), 0)
    blocks = iter(sorted(name for name in params if name.startswith("Block_")))

    def visit(module):
        for layer in module.children():
            if isinstance(layer, Block):
                load(layer, params[next(blocks)])
            elif name := names.get(type(layer)):
                _load_layer(layer, params[f"{name}_{counts[name]}"])
                counts[name] += 1
            else:
                visit(layer)

    visit(model)


def _load_layer(layer: nn.Module, params: Any) -> None:
    if isinstance(layer, nn.GroupNorm):
        weight = torch.tensor(params["scale"])
    else:  # (..., in, out) to (out, in, ...)
        out, into, *window = layer.weight.shape
        weight = torch.tensor(params["kernel"]).reshape(*window, into, out)
        weight = weight.movedim((-1, -2), (0, 1))
    layer.weight.data.copy_(weight)
    if layer.bias is not None:
        layer.bias.data.copy_(torch.tensor(params["bias"]))


def pack(model: nn.Module, size: int) -> torch.Tensor:
    """The parameters as packets of that size, (packet, length), the last one zero-padded."""
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    return F.pad(flat, (0, -len(flat) % size)).reshape(-1, size)


def average(replicas: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> None:
    """RPS in place: the mean of what arrived, where it comes back.

    Args:
      replicas: (..., worker, packet, length).
      up, down: (..., worker, packet), 1 where delivered, else 0.
    """
    count = up.sum(-2, keepdim=True)
    mean = (replicas * up[..., None]).sum(-3, keepdim=True) / count.clamp(min=1)[..., None]
    # By weights of exactly 0 or 1, which is several times as fast as a choice by booleans.
    replicas.lerp_(mean, (down * (count > 0))[..., None])


class Batch(NamedTuple):
    """What a step draws, with leading axes (config, worker): examples, and masks of packets."""

    x: torch.Tensor
    y: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor


def loop_step(
    model: nn.Module, replicas: torch.Tensor, learning_rate: float
) -> Callable[[Batch], None]:
    """``step(batch)``, which changes the replicas: a module of its own for each of them.

    Args:
      model: of any parameters.
      replicas: (config, worker, packet, length).
    """
    modules = [[copy.deepcopy(model) for _ in config] for config in replicas]
    for config, row in zip(replicas, modules, strict=True):
        for replica, module in zip(config, row, strict=True):
            # From here on the module's parameters are views of its replica.
            nn.utils.vector_to_parameters(replica.view(-1), module.parameters())
    parameters = [[list(module.parameters()) for module in row] for row in modules]

    def step(batch: Batch) -> None:
        for c, row in enumerate(modules):
            for n, module in enumerate(row):
                loss = F.cross_entropy(module(batch.x[c, n]), batch.y[c, n])
                grads = torch.autograd.grad(loss, parameters[c][n])
                with torch.no_grad():
                    for parameter, g in zip(parameters[c][n], grads, strict=True):
                        parameter.sub_(g, alpha=learning_rate)
            average(replicas[c], batch.up[c], batch.down[c])

    return step


def vmap_step(
    model: nn.Module, replicas: torch.Tensor, learning_rate: float
) -> Callable[[Batch], None]:
    """``step(batch)``, which changes the replicas: all their gradients in one call.

    One vmap over configs times workers: nested ones, or chunks of it, are slower.

    Args:
      model: of any parameters.
      replicas: (config, worker, packet, length).
    """
    flat, params, start = replicas.view(-1, replicas[0, 0].numel()), {}, 0
    for name, parameter in model.named_parameters():
        end = start + parameter.numel()
        params[name] = flat[:, start:end].view(-1, *parameter.shape)
        start = end

    def loss_of(params, x, y):
        return F.cross_entropy(functional_call(model, params, (x,)), y)

    gradients = vmap(grad(loss_of))

    def step(batch: Batch) -> None:
        grads = gradients(params, batch.x.flatten(0, 1), batch.y.flatten(0, 1))
        for name, g in grads.items():
            params[name].sub_(g, alpha=learning_rate)
        average(replicas, batch.up, batch.down)

    return step


def training(
    make_step: Callable[..., Callable[[Batch], None]],
    work_shape: Sequence[int],
    model_name: str,
    features: Sequence[int],
    num_configs: int,
    *,
    workers: int = 16,
    batch_size: int = 32,
    packet_size: int,
    learning_rate: float,
    drop_probability: float,
) -> Callable[[int], torch.Tensor]:
    """A training of many configs on random data, with all cores.

    Args:
      make_step: ``loop_step`` or ``vmap_step``.
      work_shape: of an example, channels last.
      model_name, features: a key of ``TORCH_MODELS``, and widths of its hidden layers.

    Returns:
      ``advance(steps)``, which trains on from where it was; it returns the replicas,
      (config, worker, packet, length), which the next call changes.
    """
    torch.set_num_threads(os.cpu_count() or 1)
    torch.manual_seed(0)
    model = TORCH_MODELS[model_name](work_shape, features)
    replicas = pack(model, packet_size).repeat(num_configs, workers, 1, 1)
    step = make_step(model, replicas, learning_rate)

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(EXAMPLES, *work_shape, generator=generator)
    y = torch.randint(CLASSES, (EXAMPLES,), generator=generator)
    order = torch.randperm(EXAMPLES, generator=generator)
    shards = order[: EXAMPLES // workers * workers].view(workers, -1)

    def draw() -> Batch:
        shape = (num_configs, workers, batch_size)
        place = torch.randint(shards.shape[1], shape, generator=generator)
        index = shards[torch.arange(workers)[:, None], place]
        uniform = torch.rand(2, *replicas.shape[:3], generator=generator)
        up, down = (uniform >= drop_probability).float()
        return Batch(x[index], y[index], up, down)

    def advance(steps: int) -> torch.Tensor:
        for _ in range(steps):
            step(draw())
        return replicas

    return advance


torch_loop = functools.partial(training, loop_step)
torch_vmap = functools.partial(training, vmap_step)
