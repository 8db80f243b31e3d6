"""Encoders and encoder-decoders: BERT and kin, T5 and kin, ViT, Whisper."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.catalog.hf.build import assemble
from meshwright.catalog.hf.view import REQUIRED, Config
from meshwright.messages import N_, Text
from meshwright.spec.model import Attention, Block, Extra, Mlp, ModelSpec


def _self_attention(c: Config, default: int) -> Attention:
    hidden, n = c.hidden(), c.heads(default)
    c.divides(n, hidden, "num_attention_heads", "hidden_size")
    return Attention(heads=n, kv_heads=n, head_dim=hidden // n, causal=False, qkv_bias=True, out_bias=True)


def bert(c: Config) -> ModelSpec:
    """BERT and RoBERTa with the masked-language-modelling head (a dense layer and norm before the tied decoder)."""
    hidden, positions = c.hidden(), c.positions(512) or 0
    mlp = Mlp(width=c.width(3072), gated=False, bias=True, activation=c.word("hidden_act", "gelu"))
    types = c.count("type_vocab_size", 2, low=0) if c.family != "distilbert" else 0
    extras = [Extra(name="mlm_transform", params=hidden * hidden + 3 * hidden, where="last",
                    flops_per_token=2 * hidden * hidden)]  # fmt: skip
    if types:
        extras.insert(0, Extra(name="token_types", params=types * hidden))
    return assemble(
        c, [Block(mixer=_self_attention(c, 12), mlp=mlp, norm="layer")] * c.layers(),
        vocab=c.vocab(50265 if c.family == "roberta" else 30522), learned_positions=positions, embedding_norm="layer",
        final_norm="none", tied_embeddings=c.flag("tie_word_embeddings", True), head_bias=True, extras=tuple(extras),
        max_positions=positions,
    )  # fmt: skip


def t5(c: Config) -> ModelSpec:
    """T5, mT5, UMT5: relative position tables (in the first layer of each stack; in every layer of UMT5)."""
    hidden, layers = c.hidden(), c.layers()
    small = c.family == "t5"
    n = c.heads(8 if small else 6)
    dim = c.count("d_kv", 64)
    decoder = c.count("num_decoder_layers", lambda: layers, high=10**4)
    projection = c.word("feed_forward_proj", "relu" if small else "gated-gelu")
    gated = projection.startswith("gated-")
    table = c.count("relative_attention_num_buckets", 32) * n
    each = table if c.family == "umt5" else 0
    mlp = Mlp(width=c.width(2048 if small else 1024), gated=gated, activation=projection.removeprefix("gated-"))
    own = Attention(heads=n, kv_heads=n, head_dim=dim, extra_params=each)
    there = Attention(heads=n, kv_heads=n, head_dim=dim, causal=False, extra_params=each)
    cross = Attention(heads=n, kv_heads=n, head_dim=dim, causal=False)
    extras = [Extra(name="encoder_final_norm", params=hidden)]
    if not each:
        extras += [Extra(name="relative_positions", params=2 * table)]
    blocks = [Block(mixer=there, mlp=mlp)] * layers + [Block(mixer=own, cross=cross, mlp=mlp, norms=3)] * decoder
    return assemble(  # tied whatever the config says, as the class does
        c, blocks, vocab=c.vocab(32128 if small else 250112), tied_embeddings=True, encoder_layers=layers,
        extras=tuple(extras),
    )  # fmt: skip


def vit(c: Config) -> ModelSpec:
    """ViT: patches in, a class token; a classifier where the config names one, else the pooler."""
    hidden = c.hidden()
    image, patch, channels = c.count("image_size", 224), c.count("patch_size", 16), c.count("num_channels", 3)
    c.divides(patch, image, "patch_size", "image_size")
    tokens = (image // patch) ** 2 + 1
    biased = c.flag("qkv_bias", True)
    base = _self_attention(c, 12)
    mixer = Attention(heads=base.heads, kv_heads=base.heads, head_dim=base.head_dim, causal=False, qkv_bias=biased,
                      out_bias=True)  # fmt: skip
    mlp = Mlp(width=c.width(3072), gated=False, bias=True, activation=c.word("hidden_act", "gelu"))
    extras = [
        Extra(name="patch_embedding", params=channels * patch * patch * hidden + hidden,
              flops_per_token=2 * channels * patch * patch * hidden),
        Extra(name="class_token", params=hidden),
    ]  # fmt: skip
    if any("ForImageClassification" in name for name in c.words("architectures") or ()):
        labels = c.data.get("id2label")
        classes = len(labels) if isinstance(labels, dict) else c.count("num_labels", 2)
        extras.append(Extra(name="classifier", params=hidden * classes + classes, where="last"))
    else:
        wide = c.count("pooler_output_size", lambda: hidden)
        extras.append(Extra(name="pooler", params=hidden * wide + wide, where="last"))
    return assemble(
        c, [Block(mixer=mixer, mlp=mlp, norm="layer")] * c.layers(),
        learned_positions=tokens, final_norm="layer", has_head=False, extras=tuple(extras), max_positions=tokens,
    )  # fmt: skip


def whisper(c: Config) -> ModelSpec:
    """Whisper: two convolutions, an encoder and a decoder; keys without bias."""
    hidden = c.hidden()
    front, back = c.count("encoder_layers", REQUIRED, high=10**4), c.count("decoder_layers", REQUIRED, high=10**4)
    mel, source = c.count("num_mel_bins", 80), c.count("max_source_positions", 1500)
    target = c.count("max_target_positions", 448)

    def attention(side: str, causal: bool) -> Attention:
        n = c.count(f"{side}_attention_heads", 6, high=10**5)
        c.divides(n, hidden, f"{side}_attention_heads", "d_model")
        return Attention(heads=n, kv_heads=n, head_dim=hidden // n, causal=causal, qkv_bias=True, key_bias=False,
                         out_bias=True)  # fmt: skip

    def mlp(side: str) -> Mlp:
        return Mlp(width=c.count(f"{side}_ffn_dim", 1536), gated=False, bias=True, activation="gelu")

    encoder = Block(mixer=attention("encoder", False), mlp=mlp("encoder"), norm="layer")
    decoder = Block(mixer=attention("decoder", True), cross=attention("decoder", False), mlp=mlp("decoder"),
                    norm="layer", norms=3)  # fmt: skip
    extras = (
        Extra(name="convolutions", params=3 * hidden * (mel + hidden) + 2 * hidden),
        Extra(name="encoder_positions", params=source * hidden),
        Extra(name="encoder_final_norm", params=2 * hidden),
    )
    if not c.flag("tie_word_embeddings", True):
        c.fail("tie_word_embeddings", Text(N_("Whisper shares its embedding with its head")))
    return assemble(
        c, [encoder] * front + [decoder] * back,
        vocab=c.vocab(51865), learned_positions=target, tied_embeddings=True, encoder_layers=front, final_norm="layer",
        extras=extras, max_positions=target,
    )  # fmt: skip


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "bert": bert,
    "roberta": bert,
    "distilbert": bert,
    "t5": t5,
    "mt5": t5,
    "umt5": t5,
    "vit": vit,
    "whisper": whisper,
}
