"""The words of speculative decoding as SpecViz uses them: one word for one thing, each with its source.

Data only; the page shows these as explanations, and a test holds the names of events and metrics to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

LEVIATHAN = "Leviathan et al., ICML 2023, arXiv 2211.17192"
CHEN = "Chen et al., 2023, arXiv 2302.01318"
KWON = "Kwon et al., SOSP 2023, arXiv 2309.06180"
EAGLE = "Li et al., 2024, arXiv 2401.15077"
LAYERSKIP = "Elhoushi et al., 2024, arXiv 2404.16710"
CALM = "Schuster et al., 2022, arXiv 2207.07061"
SPEC_BENCH = "Xia et al., ACL Findings 2024, arXiv 2401.07851"
FR_SPEC = "Zhao et al., 2025, arXiv 2502.14856"
HINTON = "Hinton et al., 2015, arXiv 1503.02531"
DISTILLSPEC = "Zhou et al., 2023, arXiv 2310.08461"
OURS = "SpecViz"


@dataclass(frozen=True, slots=True)
class Term:
    """One word.

    Attributes:
        term: as a person reads it.
        names: the names in code, events and metrics that mean it.
        meaning: one or two plain sentences.
        synonyms: what others call it; SpecViz itself does not use these.
        source: where it comes from.
    """

    term: str
    names: tuple[str, ...]
    meaning: str
    synonyms: tuple[str, ...] = ()
    source: str = OURS


TERMS: tuple[Term, ...] = (
    # -- who takes part
    Term(
        "target",
        ("target",),
        "The model whose answers are wanted. It judges every draft, and its distribution is what the text follows.",
        ("verifier", "main model"),
        f"{LEVIATHAN}; {CHEN}",
    ),
    Term(
        "drafter",
        ("drafter",),
        "Whatever proposes tokens for the target to judge: a smaller model, a lookup in the text, early layers of the target, or a head on top of it.",
        ("assistant", "approximation model", "proposer", "speculator"),
        f"{LEVIATHAN}; {CHEN}",
    ),
    Term(
        "draft model",
        ("draft_model",),
        "A drafter that is a smaller model with the same tokens as the target. It reads the whole text itself, into a KV cache of its own.",
        ("assistant model", "small model"),
        f"{LEVIATHAN}; {CHEN}",
    ),
    Term(
        "prompt lookup",
        ("prompt_lookup",),
        "A drafter without a model: it looks for the last few tokens earlier in the text and proposes what followed them there.",
        ("n-gram speculation", "PLD"),
        "Saxena, prompt-lookup-decoding, 2023",
    ),
    Term(
        "lookup first",
        ("lookup_first", "looked_up"),
        "A draft head or draft model that is asked only where prompt lookup finds nothing: what can be copied costs no "
        "draft step. All tokens of one draft come from the same of the two.",
        ("hybrid drafting",),
        "Hu et al., SAM-Decoding, arXiv 2411.10666, 2024",
    ),
    Term(
        "early exit",
        ("early_exit", "exit_layer", "shared_layers"),
        "Taking a model's guess after its first few layers. As a drafter it is lossless, because all layers judge the guess; "
        "as a decoder of its own it may change the text.",
        ("self-speculative decoding", "layer skipping"),
        f"{LAYERSKIP}; {CALM}",
    ),
    Term(
        "early-exit decoding",
        ("early_exit_decoding", "exit"),
        "Each token leaves the model at the first layer that is sure enough of it, and the layers after that are not run. "
        "Nothing checks it, so the text may differ from the full model's.",
        ("dynamic depth", "adaptive computation"),
        CALM,
    ),
    Term(
        "exit confidence",
        ("exit_confidence",),
        "How sure a layer is, from 0 to 1: the largest probability, the gap between the two largest, 1 minus the entropy over its maximum, "
        "or how little the state still changed (saturation, a cosine). A token leaves where it reaches the threshold.",
        ("exit criterion",),
        CALM,
    ),
    Term(
        "exit heads",
        ("exit_heads",),
        "What turns the state after a layer into a distribution over tokens: the model's own last norm and output head, or these "
        "behind a small trained map for each layer (a translator), since the head was made for the last layer's states.",
        ("early-exit classifier", "tuned lens", "logit lens"),
        "Belrose et al., 2023, arXiv 2303.08112",
    ),
    Term(
        "map run",
        ("exit_map", "map"),
        "A run of the full model in which every layer is also read out. Its text is plain decoding's; it is slow, and its times mean nothing.",
        (),
        OURS,
    ),
    Term(
        "timed run",
        ("exit_timed",),
        "An early-exit run whose exits are real: the layers after an exit are not run, and the time that is measured includes the exit heads'.",
        (),
        OURS,
    ),
    Term(
        "draft head",
        ("draft_head",),
        "A small network that drafts from the target's own inner states: one layer, which takes them for the tokens that were "
        "judged, and its own output for those that it guesses on from. It knows no other target.",
        ("EAGLE head", "MTP head"),
        EAGLE,
    ),
    Term(
        "features",
        ("features", "feature_layers", "hidden_states"),
        "What the target has worked out about a token after some of its layers, as a list of numbers. "
        "A draft head reads the features of a few layers, which the verifying pass makes anyway.",
        ("hidden states", "activations"),
        EAGLE,
    ),
    Term(
        "cut vocabulary",
        ("cut_vocab_size", "cut_vocabulary"),
        "The part of the target's tokens that a draft can say, to make guessing cheaper. "
        "A draft that shares the target's output head can say the tokens of the text so far too. "
        "Any other token has draft probability 0: it is never drafted, and comes from the target alone.",
        ("draft vocabulary", "vocabulary trimming"),
        FR_SPEC,
    ),
    Term(
        "distillation",
        ("distillation", "distilled"),
        "Training a small model to say what a large one says: here a draft, on text that the target wrote, towards the target's own probabilities.",
        ("knowledge distillation",),
        f"{HINTON}; {DISTILLSPEC}",
    ),
    Term(
        "plain decoding",
        ("plain", "plains", "none", "plain_seconds", "plain_tokens_per_second"),
        "One target pass for every token, with nothing drafted. A plain token is one that came that way, in a round without a draft.",
        ("autoregressive decoding", "baseline", "AR"),
    ),
    Term(
        "served run",
        ("served",),
        "A run on a server that reports how many tokens it drafted and accepted, but not everything about them.",
    ),
    # -- a round
    Term(
        "k",
        ("num_draft_tokens", "max_draft_tokens"),
        "How many tokens are asked for in each draft. A draft may be shorter.",
        ("gamma", "K", "num_speculative_tokens", "num_assistant_tokens", "speculation length"),
        f"{LEVIATHAN} (gamma); {CHEN} (K)",
    ),
    Term(
        "adaptive k",
        ("auto", "draft_threshold"),
        "Drafting on for as long as the drafter is sure enough that its whole draft will stand: the product of its top "
        "probabilities so far. It looks at distributions, never at the tokens drawn, so that the text keeps the target's distribution.",
        ("dynamic speculation length",),
    ),
    Term(
        "round",
        ("round", "rounds"),
        "Draft, verify, commit, roll back. Each round has exactly one target pass.",
        ("iteration", "step", "drafting-verification cycle"),
    ),
    Term(
        "draft",
        ("draft", "drafted", "draft_token"),
        "The tokens proposed in one round. Drafted = accepted + rejected + discarded + cut.",
        ("candidates", "proposal", "speculation"),
        f"{LEVIATHAN}; {CHEN}",
    ),
    Term(
        "verify",
        ("verify",),
        "One target pass over the whole draft, which gives the target's opinion at every position of it at once.",
        ("scoring",),
        f"{LEVIATHAN}; {CHEN}",
    ),
    Term(
        "judge",
        ("judge", "judged"),
        "To go through the draft from left to right and accept token after token until one fails. What comes after the first failure is not judged.",
        (),
        f"{LEVIATHAN}; {CHEN}",
    ),
    Term(
        "commit",
        ("committed",),
        "To add tokens to the text for good: the accepted ones and the extra one.",
        ("emit",),
    ),
    Term(
        "accepted",
        ("accepted",),
        "A drafted token that stays: the target's own choice when greedy, else one that won its throw. "
        "Everything drafted before it was accepted too.",
        ("matched",),
        f"{LEVIATHAN}, algorithm 1; {CHEN}, algorithm 2",
    ),
    Term(
        "rejected",
        ("rejected",),
        "The first drafted token of a round that failed; there is at most one a round.",
        (),
        f"{LEVIATHAN}, algorithm 1; {CHEN}, algorithm 2",
    ),
    Term(
        "discarded",
        ("discarded",),
        "Drafted after the rejected token and thrown away with it. It was never judged, as the text before it had become void.",
        ("wasted",),
    ),
    Term(
        "cut",
        ("cut",),
        "Drafted after the token at which generation stopped. It was never judged, and counts as neither right nor wrong.",
    ),
    Term(
        "extra token",
        ("extra",),
        "The token that the target itself adds to a round: a correction, a bonus or a plain one.",
        ("next token",),
    ),
    Term(
        "correction",
        ("correction", "corrections"),
        "What the target puts in place of the rejected token: its own choice when greedy, else a draw from the residual.",
        ("recovered token", "resampled token"),
        f"{LEVIATHAN}; {CHEN}",
    ),
    Term(
        "bonus",
        ("bonus", "bonuses"),
        "One more token from the target when the whole draft was accepted. It is free: the verifying pass had worked it out already.",
        (),
        "the word is vLLM's; the idea Leviathan et al. and Chen et al.",
    ),
    Term(
        "rollback",
        ("rollback", "rolled_back"),
        "Cutting the caches back to the text that stays, after drafted tokens were withdrawn.",
        ("crop", "truncate", "rewind"),
    ),
    Term(
        "residual",
        ("residual", "residual_top", "residual_tail"),
        "What is left of the target's probabilities after the draft's are subtracted, with negatives set to 0 and the rest scaled to 1. "
        "Drawing corrections from it makes the text follow the target exactly.",
        ("adjusted distribution", "positive part"),
        f"{LEVIATHAN}; {CHEN}",
    ),
    Term(
        "throw",
        ("u", "accept_prob"),
        "A random number u between 0 and 1, thrown for each judged token when sampling. The token is accepted when u is less than "
        "target probability / draft probability.",
        ("die", "uniform"),
        f"{LEVIATHAN}, algorithm 1",
    ),
    Term(
        "draft and target probability",
        ("draft_prob", "target_prob", "draft_prob_used", "target_prob_used"),
        "How probable each of the two models finds a token. The ones marked as used are after temperature, top-k and top-p, as in the test.",
        ("p and q, and which is which differs from paper to paper",),
        f"{LEVIATHAN} (p target, q draft); {CHEN} (the other way round)",
    ),
    Term(
        "top list and tail",
        ("draft_top", "target_top", "draft_tail", "target_tail"),
        "The five most probable tokens of a distribution, and the probability of all others together.",
    ),
    Term(
        "why a draft ended early",
        ("draft_stop", "confidence", "budget", "no_match"),
        "confidence: the drafter was no longer sure enough; eos: it drafted the end token; context or budget: no room for more; "
        "no_match: the text held nothing to copy.",
    ),
    # -- losslessness
    Term(
        "lossless",
        ("lossless",),
        "Drafting changes the speed and not the result: when greedy the same text, when sampling the same distribution "
        "(not the same text for a seed). In low precision near-ties may still flip.",
        ("exact",),
        f"{LEVIATHAN}; {CHEN}",
    ),
    Term(
        "identity",
        ("identity", "identical", "first_difference", "against"),
        "The comparison of a run with plain decoding, token for token, made in that run; or where the two first differ.",
    ),
    Term(
        "top-2 gap",
        ("top2_gap",),
        "How far the target's two largest logits are apart. Where it is tiny, rounding alone can decide between them.",
    ),
    Term(
        "greedy",
        ("greedy",),
        "Always taking the most probable token; temperature 0.",
        ("argmax", "temperature 0"),
    ),
    # -- how well it went
    Term(
        "alpha, the acceptance rate",
        ("alpha", "alpha_interval"),
        "accepted / (accepted + rejected): how often a judged token is accepted. The interval says how sure that is (95%, Wilson).",
        ("acceptance rate",),
        f"{LEVIATHAN}; Wilson 1927",
    ),
    Term(
        "acceptance probability, beta",
        ("acceptance_probability",),
        "The chance that a drafted token is accepted after one particular text: what the two distributions have in common. Its average is alpha.",
        ("overlap", "1 - total variation distance"),
        f"{LEVIATHAN}, theorem 3.5",
    ),
    Term(
        "draft acceptance rate",
        ("draft_acceptance_rate",),
        "accepted / drafted, with the never judged tokens in the denominator. It is not alpha, and falls as k grows.",
        ("acceptance rate", "token acceptance rate"),
        "vLLM's and llama.cpp's reports",
    ),
    Term(
        "mean tokens per round",
        ("mean_tokens_per_round", "expected_tokens_per_round", "tokens_per_round_histogram"),
        "committed / rounds: tokens for one target pass, the extra one included. At most k+1 in a round, and 1/(1-alpha) on average whatever k.",
        ("tau", "mean acceptance length", "block efficiency", "MAT"),
        f"{EAGLE} (tau); {LEVIATHAN}, equation 1 (expected)",
    ),
    Term(
        "mean accepted draft tokens",
        ("mean_accepted_draft_tokens",),
        "accepted / rounds: the extra token is not in it.",
        ("mean accepted",),
        "gpt-fast's report",
    ),
    Term(
        "acceptance by position",
        ("acceptance_by_position",),
        "In what share of all rounds the 1st, 2nd, ... drafted token was accepted. It falls, as a token counts only when all before it were accepted.",
        (),
        "vLLM's metrics",
    ),
    Term(
        "conditional acceptance by position",
        ("conditional_acceptance_by_position", "judged_by_position"),
        "Of the rounds that judged the 1st, 2nd, ... drafted token, the share that accepted it.",
        ("hazard",),
    ),
    # -- what it cost
    Term(
        "draft cost ratio, c",
        ("draft_cost_ratio", "c"),
        "The time of one draft step / the time of one target pass over one token.",
        ("cost coefficient",),
        LEVIATHAN,
    ),
    Term(
        "verify cost ratio, v",
        ("verify_cost_ratio", "v"),
        "The time of a target pass over n tokens / over one. Theory often takes it as 1; on a CPU it is more.",
    ),
    Term(
        "speed-up",
        ("walltime_speedup", "expected_speedup", "again_tokens_per_second"),
        "How many times as fast as plain decoding, on the same prompt and machine. Below 1, drafting made it slower.",
        ("walltime improvement",),
        f"{SPEC_BENCH}; {LEVIATHAN}, theorem 3.8 (expected)",
    ),
    Term(
        "operations ratio",
        ("operations_ratio",),
        "How much more arithmetic a token takes than in plain decoding: the price of judging tokens that are then thrown away.",
        ("arithmetic operations increase",),
        f"{LEVIATHAN}, theorem 3.11",
    ),
    Term(
        "tokens per second",
        ("tokens_per_second",),
        "Committed tokens / the sum of the rounds' own seconds. Prefill, and time spent waiting for a reader, are told apart.",
        ("throughput", "TPS"),
    ),
    Term(
        "time shares",
        ("time_shares", "other"),
        "What part of the rounds' time went into drafting, verifying and everything else.",
    ),
    Term(
        "waiting",
        ("waiting",),
        "Time for which whoever reads the stream of events kept it waiting; in no speed.",
    ),
    Term(
        "time to first token, TTFT",
        ("time_to_first_token_s",),
        "From the request to the first committed token: prefill and one round. Speculation does not make it shorter.",
        ("TTFT",),
        "NVIDIA and vLLM metrics",
    ),
    Term(
        "time per output token, TPOT",
        ("time_per_output_token_s",),
        "The time after the first token / the number of tokens after it.",
        ("TPOT",),
        "vLLM benchmarks",
    ),
    Term(
        "inter-round latency",
        ("inter_round_latency_s",),
        "The gap between bursts of tokens. Under speculation tokens arrive several at a time, so gaps between tokens say little.",
        ("ITL",),
    ),
    # -- memory and phases
    Term(
        "prefill",
        ("prefill",),
        "Reading the prompt, all but its last token, into the caches before the first round.",
        ("prompt phase",),
        KWON,
    ),
    Term(
        "decode",
        ("decode", "decode_step"),
        "Everything after prefill: the rounds, each with one target pass.",
        ("autoregressive generation phase",),
        KWON,
    ),
    Term(
        "KV cache",
        ("cache", "kv_bytes_per_position", "before", "peak", "after", "reused"),
        "What a model keeps of every token it has read (keys and values in every layer), so as not to read it again. "
        "It grows while a draft is verified and is cut back afterwards.",
        ("past key values",),
        KWON,
    ),
    Term(
        "pending token",
        ("pending",),
        "The newest committed token: it is in the text and not yet in the cache. The next round feeds it along with the draft.",
    ),
    # -- ends
    Term(
        "end token",
        ("eos",),
        "The token with which a model says that it is done. Generation ends there, also in the middle of an accepted draft.",
        ("EOS",),
    ),
    Term(
        "stop string",
        ("stop",),
        "A text given by the user at which generation ends; nothing from it on is part of the output.",
    ),
    Term("length", ("length",), "The end because the allowed number of new tokens was reached."),
    Term(
        "context",
        ("context", "max_positions"),
        "How many tokens a model can hold, prompt and answer together. A run ends when the target's is full.",
        ("context window",),
    ),
    Term("cancelled", ("cancelled",), "The end because somebody stopped the run."),
    Term("deadline", ("deadline",), "The end because the time allowed for the run was over."),
    # -- the trace
    Term(
        "trace",
        ("trace", "run_started", "run_finished", "run_failed"),
        "The record of a run, one event a line: it can be replayed without any model.",
    ),
    Term(
        "mode",
        ("mode", "speculative"),
        "How a run decodes: plain, speculative, early_exit (unverified), or served by a server.",
    ),
)


@cache
def _by_name() -> dict[str, Term]:
    return {name: term for term in TERMS for name in (term.term, *term.names)}


def term_for(name: str) -> Term | None:
    """The term that a word or a name in code means; None when it is not in the glossary."""
    return _by_name().get(name)
