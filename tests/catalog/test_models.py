"""The model catalogue and the one door to models: names, paths, folders, text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright import api
from meshwright.catalog import architecture, models, schema, validate
from meshwright.engine.params import model_params
from meshwright.errors import InputError, UnknownNameError, UsageError
from meshwright.spec.model import Attention, Mamba2, ModelSpec, Moe

IDS = models.model_ids()
CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 96, "vocab_size": 100}  # fmt: skip


def test_at_least_sixty_models_of_every_kind_asked_for() -> None:
    assert len(IDS) >= 60
    asked = """
        gpt2-xl gpt-3-175b gpt-4-moe-hypothesis megatron-22b megatron-175b megatron-530b megatron-1t llama-65b
        llama-2-70b llama-3.1-405b llama-3.2-1b llama-4-scout llama-4-maverick mistral-7b mistral-nemo-12b
        mistral-large-2 mixtral-8x7b mixtral-8x22b qwen2-57b-a14b qwen2.5-72b qwen3-32b qwen3-30b-a3b
        qwen3-235b-a22b qwen3-next-80b-a3b deepseek-v2 deepseek-v2-lite deepseek-v3 kimi-k2 gpt-oss-20b
        gpt-oss-120b gemma-7b gemma-2-27b gemma-3-27b phi-3-mini phi-3-medium phi-4 olmo-2-32b nemotron-4-340b
        nemotron-h-8b nemotron-h-56b falcon-7b falcon-40b falcon-180b bloom-176b opt-175b mpt-30b gpt-neox-20b
        glm-4.5 glm-4.5-air grok-1 dbrx jamba-v0.1 jamba-1.5-large mamba2-2.7b t5-11b vit-large vit-huge vit-22b
    """
    assert set(asked.split()) <= set(IDS)


@pytest.mark.parametrize("id", IDS)
def test_entry_is_complete(id: str) -> None:
    entry, model = models.model_entry(id), models.model(id)
    assert entry.id == id == model.name
    assert entry.name and entry.source and entry.basis
    assert model.source == entry.source and model.basis == entry.basis
    assert ("config" in entry.data) != ("architecture" in entry.data)
    assert model.assumed == ()  # a catalogue file leaves nothing to defaults
    assert entry.published


# a file in a repository at a commit, a page, or (recalled, assumed) where the values are to be checked
CITATION = re.compile(r"[\w.-]+/[\w.-]+:[\w./-]+@[0-9a-f]{12}|https://\S+")


@pytest.mark.parametrize("id", IDS)
def test_the_basis_says_whether_the_values_were_read(id: str) -> None:
    entry = models.model_entry(id)
    assert entry.basis in schema.MODEL_BASES
    read = entry.basis in ("config", "code", "paper")
    assert bool(entry.data.get("date")) == read
    if read:
        assert CITATION.search(entry.source), entry.source
    assert bool(models.model(id).remarks) == (not read or "recalled" in entry.data)
    assert not validate.check_file(Path(models.__file__).parent / "data" / "models" / f"{id}.toml")


@pytest.mark.parametrize(
    ("id", "key", "value"),
    [("mixtral-8x22b", "vocab_size", 32000), ("qwen3-0.6b", "max_position_embeddings", 40960),
     ("qwen3-1.7b", "max_position_embeddings", 40960), ("qwen3-4b", "max_position_embeddings", 40960),
     ("qwen3-8b", "max_position_embeddings", 40960), ("qwen3-14b", "max_position_embeddings", 40960)],
)  # fmt: skip
def test_values_that_were_recalled_wrongly(id: str, key: str, value: int) -> None:
    """As the config.json of each model has them (source in the file)."""
    assert models.model_entry(id).data["config"][key] == value


def test_mixtral_8x22b_weighs_what_its_checkpoint_does() -> None:
    """The tensors of the published checkpoint hold 281 241 268 224 bytes of bf16."""
    assert model_params(models.model("mixtral-8x22b")).total * 2 == 281_241_268_224


@pytest.mark.parametrize(
    ("id", "words"),
    [("vit-22b", ("recalled", "2302.05442")), ("gpt-4-moe-hypothesis", ("assumed, not known",)),
     ("megatron-1t", ("recalled", "vocab_size"))],
)  # fmt: skip
def test_a_plan_repeats_what_was_not_read(id: str, words: tuple[str, ...]) -> None:
    said = [str(text) for text in api.problem(model=id, cluster="h100-sxm:64").assumptions]
    assert any(all(word in text for word in words) for text in said), said


def test_a_plan_says_what_was_read_without_reservation() -> None:
    said = [str(text) for text in api.problem(model="llama-3.1-8b", cluster="h100-sxm:8").assumptions]
    assert not any("llama-3.1-8b" in text.lower() or text.startswith("model:") for text in said), said


def test_defaults_of_a_config_reach_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert any("tie_word_embeddings" in str(text) for text in api.problem(model=path, cluster="h100-sxm:8").assumptions)


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [(('basis = "code"', 'basis = "rumour"'), "MW-CATALOG-BASIS", "recalled"),
     (('["vocab_size"]', '["vocab"]'), "MW-CATALOG-FIELD", "vocab_size"),
     (('["vocab_size"]', "3"), "MW-CATALOG-TEXT", "")],
)  # fmt: skip
def test_validate_checks_where_the_values_are_from(
    change: tuple[str, str], code: str, word: str, tmp_path: Path
) -> None:
    shipped = (Path(models.__file__).parent / "data" / "models" / "megatron-1t.toml").read_text()
    path = tmp_path / "megatron-1t.toml"
    assert shipped.replace(*change) != shipped
    path.write_text(shipped.replace(*change))
    (finding,) = validate.check_file(path, "models")
    assert finding.code == code and word in str(finding.fix or "")


def test_the_hypothesis_is_labelled() -> None:
    model = models.model("gpt-4-moe-hypothesis")
    assert model.basis == "assumed" and "hypothesis" in model.notes[0]
    moe = model.moe
    assert moe is not None and (moe.experts, moe.top_k, model.layers) == (16, 2, 120)


@pytest.mark.parametrize(
    ("name", "id"),
    [("Llama-3.1-70B", "llama-3.1-70b"), ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"), ("llama-3-70b", "llama-3-70b"),
     ("llama-3-405b", "llama-3.1-405b"), ("gpt3-175b", "gpt-3-175b"), ("Mixtral 8x22B", "mixtral-8x22b"),
     ("deepseek-ai/DeepSeek-V3", "deepseek-v3"), ("405b", "llama-3.1-405b"), ("maverick", "llama-4-maverick"),
     ("235b qwen3", "qwen3-235b-a22b"), ("grok", "grok-1"), ("gpt_oss_120b", "gpt-oss-120b")],
)  # fmt: skip
def test_names(name: str, id: str) -> None:
    assert models.resolve(name) == id


def test_ambiguous_fragment_lists_candidates() -> None:
    with pytest.raises(UnknownNameError, match="ambiguous") as caught:
        models.model("llama-2")
    assert "llama-2-7b" in str(caught.value.fix) and "llama-2-70b" in str(caught.value.fix)


@pytest.mark.parametrize("name", ["llama-9-80b", "", " ", "\0", "x" * 10_000, "🦙", "-", "--", "../..", "."])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        models.model(name)
    assert caught.value.exit_code == 2
    assert len(str(caught.value)) < 300


def test_close_names_are_suggested() -> None:
    with pytest.raises(UnknownNameError) as caught:
        models.model("llamma-3.1-70b")
    assert "llama-3.1-70b" in str(caught.value.fix)


def test_file_folder_and_text_agree(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    text = json.dumps(CONFIG)
    (folder / "config.json").write_text(text)
    by_file, by_folder = models.model(folder / "config.json"), models.model(str(folder))
    by_text = models.model("-", text=text)
    assert by_file == by_folder
    assert by_file.name == "my-model" and by_file.basis == "file"
    assert by_text.blocks == by_file.blocks


def test_a_saved_catalogue_file_reads_back(tmp_path: Path) -> None:
    for id in ("llama-3.1-8b", "grok-1"):
        copy = tmp_path / f"{id}.toml"
        copy.write_text((Path(models.__file__).parent / "data" / "models" / f"{id}.toml").read_text())
        assert models.model(copy).blocks == models.model(id).blocks


@pytest.mark.parametrize("given", ["missing.json", "./nowhere", "/nonexistent/config.json"])
def test_missing_file(given: str) -> None:
    with pytest.raises(InputError, match="cannot read"):
        models.model(given)


def test_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        models.model(tmp_path)


def test_loading_a_model_by_id_is_quick() -> None:
    for id in ("qwen3-8b", "deepseek-v3"):
        models.model(id)  # imports
    best = min(_seconds(id) for id in ("llama-3.1-405b", "qwen3-235b-a22b", "bloom-176b", "kimi-k2"))
    assert best < 0.005


def _seconds(id: str) -> float:
    models.from_entry.cache_clear()
    start = time.perf_counter()
    models.model(id)
    return time.perf_counter() - start


def test_import_stays_light() -> None:
    code = "import sys, meshwright.catalog.models; print([m for m in ('pydantic', 'pint', 'rich') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


OWN = """
name = "mine"
hidden = 2048
vocab = 50000
layers = 8
pattern = "MMAM"

[blocks.M]
mixer = { kind = "mamba2", inner = 4096, state = 128, heads = 64, groups = 8 }
mlp = { kind = "moe", experts = 16, top_k = 2, width = 4096, shared_width = 4096 }

[blocks.A]
attention = { kind = "gqa", heads = 16, kv_heads = 4, head_dim = 128, window = 4096 }
mlp = { kind = "gated", width = 8192 }
"""


def test_own_architecture() -> None:
    model = models.model("-", text=OWN)
    assert model.pattern == (0, 0, 1, 0) * 2
    assert isinstance(model.blocks[0].mixer, Mamba2) and isinstance(model.blocks[0].mlp, Moe)
    assert isinstance(model.blocks[1].mixer, Attention) and model.blocks[1].mixer.window == 4096
    m, a = model_params(model).blocks
    # by hand: SSD (2048 wide, 4096 inner, 8 groups of 128, 64 heads, 4 taps), router, 17 MLPs, norms
    ssd = 2048 * (2 * 4096 + 2 * 8 * 128 + 64) + 5 * (4096 + 2048) + 3 * 64 + 4096 + 4096 * 2048
    assert m.total == ssd + 16 * 2048 + 17 * 3 * 2048 * 4096 + 2 * 2048
    assert a.total == 2048 * (2048 + 2 * 512) + 2048 * 2048 + 3 * 2048 * 8192 + 2 * 2048
    assert model_params(model).total == 6 * m.total + 2 * a.total + 2 * 50000 * 2048 + 2048


def test_own_architecture_equals_the_config_it_describes() -> None:
    text = """
    hidden = 4096
    vocab = 128256
    layers = [{ block = "a", repeat = 30 }, { block = "a" }, { block = "a", repeat = 1 }]
    [blocks.a]
    mixer = { heads = 32, kv_heads = 8, head_dim = 128 }
    mlp = { width = 14336 }
    """
    own, known = architecture.from_text(text), models.model("llama-3.1-8b")
    assert own.blocks == known.blocks and own.pattern == known.pattern
    assert model_params(own).total == 8030261248


@pytest.mark.parametrize(
    ("change", "expected", "fix"),
    [(("hidden =", "hiden ="), "unknown key 'hiden'", "hidden"),
     (("heads = 16", "head = 16"), "unknown key 'head'", "heads"),
     (('"mamba2"', '"mamba3"'), "no kind is called 'mamba3'", "mamba2"),
     (('"MMAM"', '"M M X"'), "no block is called 'X'", "M"),
     (("layers = 8", "layers = 9"), "9 layers cannot be filled", ""),
     (("hidden = 2048", "hidden = -1"), "'hidden' is -1", ""),
     (("hidden = 2048", 'hidden = "wide"'), "not a whole number", ""),
     (("hidden = 2048", "hidden = nan"), "not a whole number", ""),
     (("hidden = 2048", ""), "'hidden' is missing", ""),
     (("top_k = 2", "top_k = 20"), "20 of 16 experts", ""),
     (("kv_heads = 4", "kv_heads = 5"), "kv_heads = 5 does not divide heads = 16", ""),
     (("width = 8192", "width = true"), "not a whole number", ""),
     (('pattern = "MMAM"', 'pattern = "M"'), "block 'A' is never used", ""),
     (('pattern = "MMAM"', ""), "several blocks need a 'pattern'", "M A"),
     (("layers = 8", "layers = = 8"), "not valid TOML", "")],
)  # fmt: skip
def test_own_architecture_errors(change: tuple[str, str], expected: str, fix: str) -> None:
    text = OWN.replace(*change)
    assert text != OWN
    with pytest.raises(InputError) as caught:
        models.model("-", text=text)
    assert expected in str(caught.value)
    assert fix in str(caught.value.fix or "")


LITERALS = st.sampled_from(
    ["-1", "0", "1", "3", "1e30", "nan", "inf", "true", '""', '"A"', "[]", "{}", "99999999999999999999", "1979-05-27"]
)


@settings(max_examples=300, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 40), LITERALS), min_size=1, max_size=3))
def test_any_architecture_gives_a_model_or_one_clear_error(changes: list[tuple[int, str]]) -> None:
    pieces = re.split(r"(?<== )([^,\n{}]+)", OWN)
    values = list(range(1, len(pieces), 2))
    for index, literal in changes:
        pieces[values[index % len(values)]] = literal
    try:
        model = models.model("-", text="".join(pieces))
    except InputError as error:
        assert str(error) and error.where
    else:
        assert isinstance(model, ModelSpec) and model_params(model).total > 0


def test_the_example_of_the_reference_page_reads() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "model-toml.md").read_text()
    model = models.model("-", text=page.split("```toml\n")[1].split("```")[0])
    assert (model.name, model.layers, len(model.blocks)) == ("my-hybrid", 32, 2)
