"""The next id from logits: Hugging Face's distribution, a sample defined to the bit, and stop strings."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.utils import GenerationMixin

from regard.engine.sampling import (
    RowState,
    StopStrings,
    adjust,
    distribution,
    logprobs,
    next_ids,
    random_bits,
    ranked,
    start,
    top_logprobs,
)
from regard.engine.settings import Settings
from regard.errors import GenerationError

V = 24
quick = settings(max_examples=50, deadline=None)


def random_logits(seed: int, rows: int = 1, n_vocab: int = V, scale: float = 3.0) -> np.ndarray:
    return (torch.randn(rows, n_vocab, generator=torch.Generator().manual_seed(seed)) * scale).numpy()


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def listed(scores: list[list[float]]) -> np.ndarray:
    return np.array(scores, np.float32)


def row_after(given: Settings, prompt: list[int], answer: list[int], limit: int | None = None) -> RowState:
    row = RowState(given, prompt, limit=limit)
    for id in answer:
        row.push(id)
    return row


def hf_processors(given: Settings, prompt_length: int, limit: int) -> hf.LogitsProcessorList:
    """Hugging Face's own list, in its own order, for the same settings."""
    config = hf.GenerationConfig(
        do_sample=given.temperature > 0,
        temperature=given.temperature or None,
        top_k=given.top_k,
        top_p=given.top_p,
        min_p=given.min_p or None,
        typical_p=given.typical_p,
        repetition_penalty=given.repetition_penalty,
        no_repeat_ngram_size=given.no_repeat_ngram_size,
        sequence_bias=[[[id], bias] for id, bias in given.logit_bias.items()] or None,
        bad_words_ids=[list(word) for word in given.bad_words_ids] or None,
        suppress_tokens=list(given.suppress_tokens) or None,
        begin_suppress_tokens=list(given.begin_suppress_tokens) or None,
        forced_bos_token_id=given.forced_bos_token_id,
        forced_eos_token_id=list(given.forced_eos_token_id) or None,
        min_length=given.min_length,
        min_new_tokens=given.min_new_tokens or None,
        eos_token_id=list(given.eos_token_id) or None,
        max_length=prompt_length + limit,
    )
    config._eos_token_tensor = torch.tensor(given.eos_token_id) if given.eos_token_id else None

    class Asked:  # what the method reads of a model
        config = hf.GPT2Config()
        _merge_criteria_processor_list = staticmethod(lambda default, custom: default)

    return GenerationMixin._get_logits_processor(Asked(), config, input_ids_seq_length=prompt_length, device="cpu")


def hf_distribution(
    logits: np.ndarray, given: Settings, prompt: list[int], answer: list[int], limit: int
) -> np.ndarray:
    ids = torch.tensor([prompt + answer])
    scores = hf_processors(given, len(prompt), limit)(ids, torch.from_numpy(logits).double())
    if given.temperature == 0:
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).double().numpy()
    return scores.softmax(-1).numpy()


token = st.integers(0, V - 1)
some = st.lists(token, max_size=3, unique=True)


@st.composite
def any_settings(draw) -> Settings:
    def maybe(strategy, off):
        return draw(st.one_of(st.just(off), strategy))

    return Settings(
        temperature=draw(st.sampled_from([0.0, 0.3, 0.8, 1.0, 1.7])),
        top_k=maybe(st.integers(1, V + 3), 0),
        top_p=maybe(st.floats(0.05, 0.99), 1.0),
        min_p=maybe(st.floats(0.01, 0.5), 0.0),
        typical_p=maybe(st.floats(0.1, 0.99), 1.0),
        repetition_penalty=maybe(st.floats(0.5, 2.0), 1.0),
        no_repeat_ngram_size=draw(st.integers(0, 3)),
        logit_bias={id: draw(st.floats(-5, 5)) for id in draw(some)},
        bad_words_ids=draw(st.lists(st.lists(token, min_size=1, max_size=3), max_size=4, unique_by=tuple)),
        suppress_tokens=draw(st.lists(st.integers(V // 2, V - 1), max_size=3)),
        begin_suppress_tokens=draw(some),
        forced_bos_token_id=maybe(st.integers(0, V // 2 - 1), None),
        forced_eos_token_id=maybe(st.integers(0, V // 2 - 1), ()),
        eos_token_id=draw(some),
        min_new_tokens=draw(st.integers(0, 3)),
        seed=0,
    )


class TestAgainstHuggingFace:
    @quick
    @given(any_settings(), st.lists(token, min_size=1, max_size=12), st.lists(token, max_size=4), st.integers(0, 10**6))
    def test_all_settings_together(self, asked, prompt, answer, seed):
        logits = random_logits(seed)
        limit = 5
        row = row_after(asked, prompt, answer, limit)
        expected = hf_distribution(logits, asked, prompt, answer, limit)
        if not np.isfinite(expected).all() or (adjust(logits, [row]) == -math.inf).all():
            with pytest.raises(GenerationError, match="banned"):
                distribution(logits, [row])
        else:
            np.testing.assert_allclose(distribution(logits, [row]), expected, rtol=0, atol=1e-6)

    @pytest.mark.parametrize(
        "asked",
        [
            {"top_k": 5},
            {"top_p": 0.3},
            {"top_p": 0.95},
            {"min_p": 0.1},
            {"typical_p": 0.2},
            {"typical_p": 0.95},
            {"top_k": 100, "top_p": 0.7},
        ],
        ids=str,
    )
    def test_each_cut_on_a_large_vocabulary(self, asked):
        given = Settings(temperature=0.9, seed=0, **asked)
        logits = random_logits(1, n_vocab=5000)
        expected = hf_distribution(logits, given, [1], [], 5)
        ours = distribution(logits, [RowState(given, [1])])
        assert int((ours > 0).sum()) == int((expected > 0).sum())
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)

    @quick
    @given(st.lists(st.integers(-2, 2), min_size=2, max_size=V), st.integers(1, V), st.sampled_from([0.0, 0.1, 0.2]))
    def test_ties_are_kept(self, scores, top_k, min_p):
        logits = listed([scores])
        given = Settings(temperature=1.0, top_k=top_k, min_p=min_p, seed=0)
        expected = hf_distribution(logits, given, [0], [], 5)
        np.testing.assert_allclose(distribution(logits, [RowState(given, [0])]), expected, rtol=0, atol=1e-6)

    @pytest.mark.parametrize(("top_p", "kept"), [(0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4), (1e-9, 1)])
    def test_top_p_keeps_the_token_that_crosses(self, top_p, kept):
        logits = zeros(1, 4)
        given = Settings(temperature=1.0, top_p=top_p, seed=0)
        ours = distribution(logits, [RowState(given, [0])])
        assert ours.tolist() == [[1 / kept] * kept + [0.0] * (4 - kept)]  # of equals, the lowest ids
        assert int((hf_distribution(logits, given, [0], [], 5) > 0).sum()) == kept

    @quick
    @given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 4), st.integers(0, 39))
    def test_no_repeat_ngram_is_the_same_grown_or_scanned(self, ids, size, split):
        prompt, answer = ids[: split + 1], ids[split + 1 :]
        row = row_after(Settings(no_repeat_ngram_size=size), prompt, answer)
        scanned = hf.NoRepeatNGramLogitsProcessor(size)(torch.tensor([ids]), torch.zeros(1, 4))
        assert sorted(set(row.banned())) == [i for i in range(4) if scanned[0, i] == -math.inf]

    def test_several_forced_ends_are_equally_likely(self):
        given = Settings(temperature=1.0, forced_eos_token_id=(3, 7), seed=0)
        row = row_after(given, [1], [1, 1], limit=3)
        ours = distribution(random_logits(0), [row])
        assert ours[0, [3, 7]].tolist() == [0.5, 0.5]
        np.testing.assert_allclose(ours, hf_distribution(random_logits(0), given, [1], [1, 1], 3), atol=1e-9)

    def test_begin_suppression_waits_for_the_forced_token(self):
        given = Settings(begin_suppress_tokens=(3,), forced_bos_token_id=5)
        assert row_after(given, [2], []).suppressed() == ()
        assert row_after(given, [2], [5]).suppressed() == (3,)
        assert row_after(given, [2, 7], []).suppressed() == (3,)


class TestAdjust:
    def test_presence_and_frequency_count_the_answer_alone(self):
        row = row_after(Settings(presence_penalty=0.5, frequency_penalty=0.25), [1, 1, 1], [2, 3, 2])
        assert adjust(zeros(1, 5) + 1, [row]).tolist() == [[1.0, 1.0, 0.0, 0.25, 1.0]]

    def test_bias_comes_before_the_repetition_penalty_and_that_before_presence(self):
        row = row_after(
            Settings(logit_bias={0: -3.0, 1: 3.0}, repetition_penalty=2.0, presence_penalty=1.0), [0], [1, 2]
        )
        assert adjust(listed([[1.0, 1.0, -1.0, 1.0]]), [row]).tolist() == [[-4.0, 1.0, -3.0, 1.0]]

    def test_does_not_touch_the_logits(self):
        logits = zeros(1, 4) + 1
        adjust(logits, [row_after(Settings(suppress_tokens=(0,), logit_bias={1: 1.0}), [0], [])])
        assert logits.tolist() == [[1.0] * 4]

    def test_rows_are_independent(self):
        rows = [
            row_after(Settings(logit_bias={0: 1.0}), [1], [2]),
            row_after(Settings(), [1], [2]),
            row_after(Settings(repetition_penalty=2.0, suppress_tokens=(3,)), [1], [2]),
            row_after(Settings(forced_bos_token_id=1), [0], []),
        ]
        inf = math.inf
        assert adjust(zeros(4, 4) + 2, rows).tolist() == [
            [3.0, 2.0, 2.0, 2.0],
            [2.0, 2.0, 2.0, 2.0],
            [2.0, 1.0, 1.0, -inf],
            [-inf, 0.0, -inf, -inf],
        ]


class TestRandomBits:
    def test_is_splitmix64(self):
        # The first outputs of SplitMix64 from state 0; seed 0 and sample 0 have that key.
        assert [random_bits(0, 0, step) for step in range(3)] == [
            0xE220A8397B1DCDAF,
            0x6E789E6AA1B965F4,
            0x06C45D188009454F,
        ]

    def test_negative_seeds_are_taken_modulo(self):
        assert random_bits(-1, 0, 0) == random_bits(2**64 - 1, 0, 0)

    def test_streams_differ(self):
        bits = {random_bits(seed, sample, step) for seed in range(10) for sample in range(10) for step in range(10)}
        assert len(bits) == 1000


def by_definition(scores: list[float], row: RowState) -> int:
    """The draw as the module's docstring defines it, over the whole vocabulary, without cuts."""
    order = sorted(range(len(scores)), key=lambda id: (-scores[id], id))
    best = scores[order[0]]
    weights = [math.floor(2**40 * math.exp((scores[id] - best) / row.settings.temperature)) for id in order]
    assert row.settings.seed is not None
    r = random_bits(row.settings.seed, row.sample, row.step) * sum(weights) // 2**64
    for id, weight in zip(order, weights, strict=True):
        r -= weight
        if r < 0:
            return id
    raise AssertionError


class TestNextIds:
    def test_greedy_takes_the_first_of_equals(self):
        rows = start(Settings(), [0])
        ids, log_p = next_ids(listed([[0.0, 2.0, 2.0, 1.0]]), rows)
        assert ids.tolist() == [1]
        assert log_p.item() == pytest.approx(2 - math.log(1 + 2 * math.exp(2) + math.e), abs=1e-6)
        assert rows[0].ids == [0, 1]

    @pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
    @pytest.mark.parametrize("rounded", [False, True])
    def test_draws_what_the_definition_says(self, spread, rounded):
        """Also where the pool is widened: 3000 nearly equal tokens, and scores with many ties."""
        logits = random_logits(3, rows=40, n_vocab=3000, scale=spread)
        logits = (logits * 4 / spread).round() if rounded else logits
        rows = [RowState(Settings(temperature=0.7, seed=9), [0], sample=i) for i in range(40)]
        expected = [by_definition(scores, row) for scores, row in zip(logits.tolist(), rows, strict=True)]
        assert next_ids(logits, rows)[0].tolist() == expected

    @pytest.mark.parametrize(
        "asked",
        [
            {"temperature": 1.0},
            {"temperature": 0.7, "top_k": 6},
            {"temperature": 1.3, "top_p": 0.8},
            {"temperature": 1.0, "min_p": 0.05},
            {"temperature": 1.0, "typical_p": 0.7},
            {"temperature": 0.8, "top_k": 12, "top_p": 0.95},
        ],
        ids=str,
    )
    def test_frequencies_match_the_distribution(self, asked):
        draws, n_vocab = 4000, 16
        logits = random_logits(5, n_vocab=n_vocab, scale=1.5)
        P = distribution(logits, [RowState(Settings(seed=1, **asked), [0])])[0]
        rows = [RowState(Settings(seed=1, **asked), [0], sample=i) for i in range(draws)]
        counts = np.bincount(next_ids(logits.repeat(draws, 0), rows)[0], minlength=n_vocab)
        likely = 5 / draws < P
        assert counts[P == 0].sum() == 0
        chi_square = ((counts - draws * P)[likely] ** 2 / (draws * P[likely])).sum()
        freedom = int(likely.sum()) - 1
        assert chi_square < freedom + 4 * math.sqrt(2 * freedom)  # four standard deviations

    def test_steps_of_one_row_are_independent(self):
        row = RowState(Settings(temperature=1.0, seed=4), [0])
        for _ in range(2000):
            next_ids(zeros(1, 4), [row])
        pairs = Counter(zip(row.ids[1::2], row.ids[2::2], strict=True))
        expected = 1000 / 16
        assert sum((pairs[i, j] - expected) ** 2 / expected for i in range(4) for j in range(4)) < 15 + 4 * 30**0.5

    def test_same_seed_same_ids_and_other_seed_others(self):
        def run(seed: int, sample: int = 0) -> list[int]:
            row = RowState(Settings(temperature=1.0, top_p=0.9, seed=seed), [0], sample=sample)
            for step in range(30):
                next_ids(random_logits(step, n_vocab=300), [row])
            return row.ids

        assert run(7) == run(7)
        assert run(7) != run(8)
        assert run(7) != run(7, sample=1)

    def test_an_unseeded_run_can_be_repeated_from_its_report(self):
        first = RowState(Settings(temperature=1.0), [0])
        again = RowState(Settings(temperature=1.0, seed=first.settings.seed), [0])
        for step in range(20):
            next_ids(random_logits(step, n_vocab=300).repeat(2, 0), [first, again])
        assert first.ids == again.ids

    @quick
    @given(st.lists(any_settings(), min_size=2, max_size=5), st.integers(0, 10**6), st.data())
    def test_batch_equals_single(self, asked, seed, data):
        asked = [each.replace(seed=i) for i, each in enumerate(asked)]
        prompts = [data.draw(st.lists(token, min_size=2, max_size=6)) for _ in asked]  # 2: no token is forced
        together = [RowState(each, prompt) for each, prompt in zip(asked, prompts, strict=True)]
        alone = [RowState(each, prompt) for each, prompt in zip(asked, prompts, strict=True)]
        for step in range(4):
            logits = random_logits(seed + step, rows=len(asked))
            ids, log_p = next_ids(logits, together)
            for i, row in enumerate(alone):
                id_alone, log_p_alone = next_ids(logits[i : i + 1], [row])
                assert ids[i] == id_alone[0]
                assert log_p[i].item() == pytest.approx(log_p_alone[0].item(), abs=1e-5)

    @pytest.mark.parametrize(
        ("asked", "kept"), [({"top_k": 40}, 3000), ({"typical_p": 0.9}, 3000), ({"top_p": 0.5}, 1500)]
    )
    def test_ties_beyond_the_pool(self, asked, kept):
        """3000 equal scores: cuts that keep ties keep all, and top_p the lowest ids; none of that fits a first pool."""
        rows = [RowState(Settings(temperature=1.0, seed=2, **asked), [0], sample=i) for i in range(30)]
        expected = [random_bits(2, i, 0) * kept // 2**64 for i in range(30)]
        assert next_ids(zeros(30, 3000), rows)[0].tolist() == expected

    @pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-9, 1e300])
    def test_extreme_temperatures(self, temperature):
        rows = [RowState(Settings(temperature=temperature, seed=1), [0], sample=i) for i in range(300)]
        ids, _ = next_ids(listed([[0.0, 90.0, -90.0]] * 300), rows)
        counts = np.bincount(ids, minlength=3)
        assert counts.tolist() == [0, 300, 0] if temperature < 1 else counts.min() > 60

    def test_a_row_with_every_token_banned_is_refused_before_any_row_changes(self):
        rows = [RowState(Settings(), [0]), RowState(Settings(suppress_tokens=(0, 1)), [0])]
        with pytest.raises(GenerationError, match="Every token of row 1 is banned"):
            next_ids(zeros(2, 2), rows)
        assert [row.step for row in rows] == [0, 0]

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_damaged_logits_are_refused(self, bad, temperature):
        with pytest.raises(GenerationError, match=f"logits of row 0 hold {bad}"):
            next_ids(listed([[0.0, bad, 1.0]]), [RowState(Settings(temperature=temperature, seed=0), [0])])


class TestRowState:
    def test_finishes_at_an_end_token_or_its_limit(self):
        row = row_after(Settings(eos_token_id=(3, 4)), [3], [1], limit=2)
        assert not row.done
        other = row.fork()
        row.push(4)
        other.push(1)
        assert (row.finished, other.finished) == ("stop", "length")
        assert RowState(Settings(), [1], limit=0).finished == "length"

    def test_fork_shares_no_history(self):
        row = row_after(Settings(no_repeat_ngram_size=2), [1, 2], [3])
        twin = row.fork()
        twin.push(2)
        twin.push(3)
        assert row.ids == [1, 2, 3]
        assert row.counts == {3: 1}
        assert row.banned() == []
        row.push(2)
        assert row.banned() == [3]
        assert twin.counts == {3: 2, 2: 1}

    def test_start_makes_n_rows_of_one_seed(self):
        rows = start(Settings(n=3, temperature=1.0), [5, 6], limit=4)
        assert [row.sample for row in rows] == [0, 1, 2]
        assert len({row.settings.seed for row in rows}) == 1
        assert all(row.ids == [5, 6] and row.limit == 4 for row in rows)


class TestLogprobs:
    def test_are_the_models_own(self):
        logits = random_logits(2, rows=3)
        expected = torch.from_numpy(logits).log_softmax(-1).numpy()
        rows = [row_after(Settings(temperature=0.5, top_k=3, logit_bias={1: 2.0}, seed=i), [1], []) for i in range(3)]
        ids, log_p = next_ids(logits, rows)
        np.testing.assert_allclose(log_p, np.take_along_axis(expected, ids[:, None], -1)[:, 0], rtol=1e-5, atol=1e-6)

    def test_top_are_sorted_and_agree(self):
        logits = random_logits(2, rows=3)
        ids, log_p = top_logprobs(logits, 5)
        expected, expected_ids = torch.from_numpy(logits).log_softmax(-1).topk(5)
        assert ids.tolist() == expected_ids.tolist()
        np.testing.assert_allclose(log_p, expected.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(logprobs(logits, ids), expected.numpy(), rtol=1e-5, atol=1e-6)
        assert top_logprobs(logits, 100)[0].shape == (3, V)

    @quick
    @given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.data())
    def test_ranked_orders_equals_by_id(self, scores, data):
        width = data.draw(st.integers(1, len(scores)))
        values, ids = ranked(listed([scores]), width)
        order = sorted(range(len(scores)), key=lambda id: (-scores[id], id))
        assert values[0].tolist() == [scores[id] for id in order[:width]]
        decided = sum(scores[id] > values[0, -1] for id in order)  # all but those that tie with the last
        assert ids[0].tolist()[:decided] == order[:decided]
        assert ids[0].tolist() == sorted(ids[0].tolist(), key=lambda id: (-scores[id], id))


def first_stop(text: str, stops: list[str]) -> tuple[int, bool]:
    """Where the shown text ends: before the stop that is complete first, the longest if several are."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return end - max(map(len, complete)), True
    return len(text), False


class TestStopStrings:
    @settings(max_examples=50, deadline=None)
    @given(
        st.lists(st.text("ab", max_size=4), max_size=15),
        st.lists(st.text("ab", min_size=1, max_size=6), max_size=3),
    )
    def test_any_chunking_shows_the_text_before_the_first_stop(self, pieces, stops):
        matcher, shown, stopped = StopStrings(stops), "", False
        text = "".join(pieces)
        end, expected = first_stop(text, stops)
        for piece in pieces:
            emitted, stopped = matcher.push(piece)
            shown += emitted
            assert text[:end].startswith(shown)
        assert stopped is expected
        assert shown + matcher.close() == text[:end]

    def test_withholds_only_what_could_become_a_stop_string(self):
        matcher = StopStrings(["</end>", "\n\n"])
        assert matcher.push("hello <") == ("hello ", False)
        assert matcher.push("/em>\n") == ("</em>", False)
        assert matcher.push("more</e") == ("\nmore", False)
        assert matcher.push("nd> and the rest") == ("", True)
        assert matcher.push("ignored") == ("", True)
        assert matcher.close() == ""

    def test_without_stops_everything_passes(self):
        matcher = StopStrings([])
        assert matcher.push("text") == ("text", False)
        assert matcher.close() == ""

    def test_withheld_text_is_returned_at_the_end(self):
        matcher = StopStrings(["STOP"])
        assert matcher.push("a STO") == ("a ", False)
        assert matcher.close() == "STO"
