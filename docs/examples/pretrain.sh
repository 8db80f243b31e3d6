#!/usr/bin/env bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=8
TP=8
PP=2

MODEL_ARGS=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear
  --untie-embeddings-and-output-weights --position-embedding-type rope
  --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256
  --attention-dropout 0 --hidden-dropout 0
)
TRAIN_ARGS=(
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
  --micro-batch-size 1 --global-batch-size $((4 * GPUS_PER_NODE * NNODES)) --train-iters 1000 --bf16
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py "${MODEL_ARGS[@]}" "${TRAIN_ARGS[@]}"
