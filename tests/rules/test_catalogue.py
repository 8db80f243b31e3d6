"""Every model of the catalogue against kinds of clusters: no rule fails, and every sentence can be said."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.catalog.clusters import cluster
from meshwright.catalog.models import model, model_ids
from meshwright.rules import RuleContext, check
from meshwright.spec import Job, Strategy
from meshwright.spec.job import OPTIMIZERS, PRECISIONS
from meshwright.spec.strategy import FRAMEWORKS, OFFLOADS, RECOMPUTES, SCHEDULES, SHARDINGS

CLUSTERS = ("h100-sxm:64", "v100-sxm-32gb:8", "mi300x:16", "gb200-nvl72:72", "tpu-v5p:64", "gaudi3:16", "rtx-4090:8",
            "a100-pcie-80gb:16")  # fmt: skip
degree = st.sampled_from((1, 2, 3, 4, 8, 16, 64))


@settings(max_examples=300)
@given(st.data())
def test_check_answers_for_anything(data: Any) -> None:
    draw = data.draw
    degrees = {
        n: draw(degree)
        for n in ("data", "tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "micro_batch")
    }
    strategy = Strategy(
        framework=draw(st.sampled_from(FRAMEWORKS)),
        sharding=draw(st.sampled_from(SHARDINGS)),
        schedule=draw(st.sampled_from(SCHEDULES)),
        recompute=draw(st.sampled_from(RECOMPUTES)),
        offload=draw(st.sampled_from(OFFLOADS)),
        precision=draw(st.sampled_from(PRECISIONS)),
        sequence_parallel=draw(st.booleans()),
        overlap_tensor=draw(st.booleans()),
        overlap_grad_reduce=draw(st.booleans()),
        shard=draw(st.sampled_from((0, 1, 8))),
        layers_per_stage=draw(st.sampled_from(((), (8, 8), (1,) * 64))),
        **degrees,
    )
    job = Job(
        seq_len=draw(st.sampled_from((1, 512, 8192, 131072))),
        global_batch=draw(st.sampled_from((1, 64, 4096))),
        optimizer=draw(st.sampled_from(OPTIMIZERS)),  # type: ignore[arg-type]
    )
    context = RuleContext(
        model(draw(st.sampled_from(model_ids()))), cluster(draw(st.sampled_from(CLUSTERS))), job, strategy
    )
    for finding in check(context):
        for text in (finding.message, finding.fix):
            said = str(text)
            assert said and "nan" not in said.split() and "inf" not in said.split()
