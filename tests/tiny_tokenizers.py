"""Small tokenizers of the kinds that matter, trained in memory on a few lines of text.

Each kind decodes in its own way, and each has its trap: byte-level BPE splits characters into bytes,
the Llama-2 kind drops the first space and falls back to bytes, the T5 kind has pieces that begin with a space.
All of them carry the same special tokens, at the same ids.
"""

from __future__ import annotations

import json
from functools import cache

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

UNK, BOS, EOS, IM_START, IM_END = "<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = [UNK, BOS, EOS, IM_START, IM_END]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Accents, a joined emoji, Hangul and two spaces: what per-token decoding breaks.
HARD_TEXT = "naïve 👩‍🚀 한국어  x"

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
    "one two three one two three one two three four five six seven",
    "user assistant system what is the capital of France? The capital of France is Paris.",
    "def add(a, b):\n    return a + b\n\nfor i in range(10):\n    print(i, add(i, 1))\n",
    "naïve café déjà vu; Grüße aus Köln; ünïcödé",
    "hello hello hello world, repeat the word hello",
    "the there then they them this that these those",
]


@cache
def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """GPT-2's and SmolLM's kind: every byte is a letter of the alphabet; comes with a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    wrapped = _wrap(tokenizer)
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


@cache
def llama2_tokenizer() -> PreTrainedTokenizerFast:
    """Llama-2's kind: a space is U+2581, one is put before the text, unknown characters become bytes."""
    learner = Tokenizer(models.BPE(unk_token=UNK))
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    learner.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=200, special_tokens=SPECIAL_TOKENS, show_progress=False)
    )
    learned = json.loads(learner.to_str())["model"]
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [word for word in learned["vocab"] if word not in SPECIAL_TOKENS]
    pieces = [*SPECIAL_TOKENS, *byte_pieces, *words]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=[tuple(pair) for pair in learned["merges"]],
            unk_token=UNK,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _wrap(tokenizer)


@cache
def unigram_tokenizer() -> PreTrainedTokenizerFast:
    """T5's kind: a unigram model over pieces that begin with U+2581; what it does not know is `<unk>`."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=SPECIAL_TOKENS, unk_token=UNK, show_progress=False)
    tokenizer.train_from_iterator([*CORPUS, HARD_TEXT], trainer)
    return _wrap(tokenizer)


TOKENIZER_KINDS = {"byte_level": byte_level_tokenizer, "llama2": llama2_tokenizer, "unigram": unigram_tokenizer}


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=UNK,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=[IM_START, IM_END],
        clean_up_tokenization_spaces=False,
    )
