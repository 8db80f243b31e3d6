"""One real training step: a small decoder of pre-norm blocks, rotary attention and SwiGLU, under AdamW.

As FSDP mixes precision: parameters, gradients and optimizer states in fp32, and a bf16 copy of the parameters, made
at the start of the step, that computes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from meshwright.bench import machine as host
from meshwright.bench.machine import Machine
from meshwright.bench.predict import model_of
from meshwright.bench.records import Skipped, TrainingStep
from meshwright.bench.sweep import Budget, Pace, shape_words
from meshwright.engine.flops import model_flops_per_token
from meshwright.engine.params import model_params
from meshwright.messages import N_, Text

KEYS = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "layers", "vocab", "seq", "micro_batch")
# From large to small: the first that fits in memory and time is run.
SHAPES = (
    (8192, 64, 8, 128, 28672, 2, 32768, 4096, 1),
    (4096, 32, 8, 128, 14336, 4, 32768, 4096, 1),
    (2048, 16, 8, 128, 5632, 4, 32768, 2048, 1),
    (1024, 16, 8, 64, 2816, 4, 8192, 1024, 1),
    (512, 8, 4, 64, 1408, 2, 4096, 512, 1),
    (256, 4, 2, 64, 704, 2, 1024, 256, 1),
)
SHARE_OF_FREE = 0.6
SLOWER = 4.0  # a step against its products at the best rate seen: what may be expected before it is tried
WARM, LEAST, MOST = 2, 3, 10
STATES = 16  # bytes of a parameter, its gradient and two moments in fp32
STEP = "training step"


def run(machine: Machine, budget: Budget, seconds: float, pace: Pace) -> Iterator[TrainingStep | Skipped]:
    """Measure the largest decoder that fits."""
    for values in SHAPES:
        shape = dict(zip(KEYS, values, strict=True))
        reason = _too_large(shape, machine, seconds, pace)
        if reason is None:
            budget.tell(Text(N_("{note}"), note=f"step {shape_words(shape)}"))
            try:
                yield _measure(machine, shape, seconds)
            except machine.out_of_memory:
                machine.release()
                reason = Text(N_("the device ran out of memory"))
            else:
                return
        yield Skipped(kind="step", phase="", kernel=STEP, shape=shape, dtype="bf16", reason=reason)


def _too_large(shape: Mapping[str, int], machine: Machine, seconds: float, pace: Pace) -> Text | None:
    need, room = needed_bytes(shape), SHARE_OF_FREE * machine.free_bytes()
    if need > room:
        return Text(N_("needs {need} bytes of memory, {room} may be used"), need=f"{need:,.0f}", room=f"{room:,.0f}")
    rate = pace.rates.get(("FLOP", "bf16"))
    if rate is None or tuple(shape.values()) == SHAPES[-1]:  # the smallest is always run
        return None
    wanted = (WARM + 2 * LEAST) * SLOWER * flops(shape) / rate
    return Text(N_("no time was left for it")) if wanted > seconds else None


def needed_bytes(shape: Mapping[str, int]) -> float:
    """A generous guess of the peak: states, a bf16 copy of the weights, saved activations, logits in fp32."""
    tokens = shape["seq"] * shape["micro_batch"]
    block = 2 * (10 * shape["hidden"] + 6 * shape["heads"] * shape["head_dim"] + 6 * shape["ffn"])
    activations = shape["layers"] * tokens * block + 16 * tokens * shape["vocab"]
    return (STATES + 4) * model_params(model_of(shape)).total + 1.3 * activations


def flops(shape: Mapping[str, int]) -> float:
    """Model FLOP of one step: forward and twice that backward, attention causal."""
    found = model_flops_per_token(model_of(shape), shape["seq"], masking="causal")
    return 3.0 * found.forward * shape["seq"] * shape["micro_batch"]


# ---------------------------------------------------------------------------------------------- the decoder


def decoder(torch: Any, shape: Mapping[str, int]) -> Any:
    """The module; parameters in fp32."""
    nn, functional = torch.nn, torch.nn.functional
    hidden, heads, kv_heads, width = (shape[key] for key in ("hidden", "heads", "kv_heads", "head_dim"))

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before_attention, self.before_mlp = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
            self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * width, bias=False)
            self.out = nn.Linear(heads * width, hidden, bias=False)
            self.gate_up = nn.Linear(hidden, 2 * shape["ffn"], bias=False)
            self.down = nn.Linear(shape["ffn"], hidden, bias=False)

        def attend(self, x: Any, turn: Any) -> Any:
            batch, seq, _ = x.shape
            mixed = self.qkv(x).view(batch, seq, heads + 2 * kv_heads, width).transpose(1, 2)
            query, key, value = mixed.split((heads, kv_heads, kv_heads), dim=1)
            query, key = _rotate(torch, query, turn), _rotate(torch, key, turn)
            found = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=heads != kv_heads
            )
            return self.out(found.transpose(1, 2).reshape(batch, seq, heads * width))

        def forward(self, x: Any, turn: Any) -> Any:
            x = x + self.attend(self.before_attention(x), turn)
            gate, up = self.gate_up(self.before_mlp(x)).chunk(2, dim=-1)
            return x + self.down(functional.silu(gate) * up)

    class Decoder(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(shape["vocab"], hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, shape["vocab"], bias=False)

        def forward(self, tokens: Any, turn: Any) -> Any:
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x, turn)
            logits = self.head(self.norm(x)).float()
            return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    return Decoder()


def _rotate(torch: Any, x: Any, turn: Any) -> Any:
    """Rotary position embedding: `turn` is cosine and sine of every position and frequency."""
    first, second = x.chunk(2, dim=-1)
    cosine, sine = turn
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)


def _turn(machine: Machine, seq: int, width: int) -> tuple[Any, Any]:
    torch = machine.torch
    frequencies = 10000.0 ** -(torch.arange(width // 2, device=machine.device) * 2.0 / width)
    angle = torch.outer(torch.arange(seq, device=machine.device), frequencies)
    return angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)


# ---------------------------------------------------------------------------------------------- measuring


@dataclass(slots=True)
class _Peak:
    """Highest memory above what stood when it was made: of torch's allocator on a GPU, resident on a Linux host."""

    machine: Machine
    base: float | None = None

    @property
    def on_gpu(self) -> bool:
        return bool(self.machine.device.type == "cuda")

    def start(self) -> None:
        cuda = self.machine.torch.cuda
        if self.on_gpu:
            self.base = float(cuda.memory_allocated(self.machine.device))
        elif self.machine.device.type == "cpu":
            host.trim()
            self.base = host.resident_bytes()

    def reset(self) -> None:
        if self.on_gpu:
            self.machine.torch.cuda.reset_peak_memory_stats(self.machine.device)
        elif not host.reset_resident_peak():
            self.base = None

    def read(self) -> tuple[float | None, Literal["allocated", "resident", ""]]:
        """Bytes, and who counted them."""
        if self.base is None:
            return None, ""
        if self.on_gpu:
            return float(self.machine.torch.cuda.max_memory_allocated(self.machine.device)) - self.base, "allocated"
        found = host.resident_peak_bytes()
        return (None, "") if found is None else (max(found - self.base, 0.0), "resident")


@dataclass(frozen=True, slots=True)
class _Trainer:
    """A decoder, its optimizer, one batch, and the parts of a step."""

    torch: Any
    model: Any
    optimizer: Any
    tokens: Any
    turn: tuple[Any, Any]

    def forward(self) -> Any:
        copy = {name: parameter.to(self.torch.bfloat16) for name, parameter in self.model.named_parameters()}
        return self.torch.func.functional_call(self.model, copy, (self.tokens, self.turn))

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        self.forward().backward()
        self.update()


def _trainer(machine: Machine, shape: Mapping[str, int]) -> _Trainer:
    torch = machine.torch
    with machine.device:
        model = decoder(torch, shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, shape["vocab"], (shape["micro_batch"], shape["seq"]), device=machine.device)
    return _Trainer(torch, model, optimizer, tokens, _turn(machine, shape["seq"], shape["head_dim"]))


def _measure(machine: Machine, shape: Mapping[str, int], seconds: float) -> TrainingStep:
    _trainer(machine, dict(zip(KEYS, SHAPES[-1], strict=True))).step()  # what kernels load stays out of the peak
    machine.release()
    memory = _Peak(machine)
    memory.start()
    trainer = _trainer(machine, shape)
    budget = Budget(seconds)
    for _ in range(WARM):
        trainer.step()
    parts = [_in_parts(machine, trainer)]
    memory.reset()
    n = max(LEAST, min(MOST, int(0.6 * budget.left / sum(parts[0]))))
    times = [_timed(machine, trainer.step) for _ in range(n)]
    peak, basis = memory.read()
    parts += [_in_parts(machine, trainer) for _ in range(LEAST - 1)]
    spent = [statistics.median(seconds) for seconds in zip(*parts, strict=True)]
    model = trainer.model
    return TrainingStep(
        shape=shape, precision="bf16", optimizer="adamw", parameters=sum(p.numel() for p in model.parameters()),
        seconds=statistics.median(times), seconds_min=min(times), n=n, forward_seconds=spent[0],
        backward_seconds=spent[1], optimizer_seconds=spent[2], work=flops(shape), peak_bytes=peak, peak_basis=basis,
        state_bytes=state_bytes(model, trainer.optimizer),
        saved_bytes=saved_bytes(machine.torch, model, trainer.forward),
    )  # fmt: skip


def state_bytes(model: Any, optimizer: Any) -> float:
    """Bytes of parameters and of the tensors of the optimizer."""
    kept = [value for state in optimizer.state.values() for value in state.values() if hasattr(value, "numel")]
    return float(sum(tensor.numel() * tensor.element_size() for tensor in [*model.parameters(), *kept]))


def saved_bytes(torch: Any, model: Any, forward: Callable[[], Any]) -> float:
    """Bytes of the storages that autograd keeps from one forward pass, those of the parameters left out."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = forward()  # held, so that no storage is freed and counted again under another address
    del loss
    return float(sum(found.values()))


def _in_parts(machine: Machine, trainer: _Trainer) -> tuple[float, float, float]:
    """Seconds of forward, backward and update of one step, with a wait after each."""
    loss: list[Any] = []
    first = _timed(machine, lambda: loss.append(trainer.forward()))
    return first, _timed(machine, lambda: loss.pop().backward()), _timed(machine, trainer.update)


def _timed(machine: Machine, call: Callable[[], None]) -> float:
    machine.synchronize()
    start = time.perf_counter()
    call()
    machine.synchronize()
    return time.perf_counter() - start
