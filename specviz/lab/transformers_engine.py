"""transformers' own `generate`: plain, with prompt lookup, and with an assistant model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specviz.engine.draft_facts import find_draft_folder
from specviz.errors import BadRequest
from specviz.lab.block_clock import ClockStreamer
from specviz.lab.engines import Setup

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOOKUP_TOKENS = 10  # `generate` has no default; this is what prompt lookup's author and its documentation use


class TransformersEngine:
    """`generate` as its users call it, greedy, with the model's own end tokens and a cache that grows.

    Args:
        name: one of `TRANSFORMERS_ENGINES`.

    Raises:
        SpecVizError: the models cannot be loaded.
    """

    def __init__(self, name: str, setup: Setup) -> None:
        import torch

        self._model = load_reference(setup.target, setup.hf_dtype, setup.device, setup.revision)
        self._draft_name: str | None = None
        self._options = self._options_of(name, setup)
        self.facts = {
            "precision": setup.hf_dtype,
            "device": str(self._model.device),
            "threads": torch.get_num_threads(),
            "draft": self._draft_name,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        import torch

        prompt = torch.tensor([request["token_ids"]], device=self._model.device)
        streamer = ClockStreamer()
        output = self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=request["max_new_tokens"],
            do_sample=False,
            repetition_penalty=1.0,
            pad_token_id=0,
            streamer=streamer,
            **self._options,
        )
        new_ids = output[0, prompt.shape[1] :].tolist()
        return streamer.clock.generation(new_ids, a_block_is_a_round=True).to_dict()

    def _options_of(self, name: str, setup: Setup) -> dict[str, Any]:
        from specviz.engine.loader import load_tokenizer, locate

        options: dict[str, Any] = {}
        tokenizer = load_tokenizer(locate(setup.target)[0], setup.revision)
        if self._model.generation_config.eos_token_id is None:
            options["eos_token_id"] = tokenizer.eos_token_id
        k = setup.num_draft_tokens
        if name == "hf_prompt_lookup":
            options["prompt_lookup_num_tokens"] = LOOKUP_TOKENS if k in (None, "auto") else k
        if name == "hf_assisted":
            assistant = self._assistant(setup)
            options["assistant_model"] = assistant
            if k not in (None, "auto"):
                assistant.generation_config.num_assistant_tokens = k
                assistant.generation_config.num_assistant_tokens_schedule = "constant"
                assistant.generation_config.assistant_confidence_threshold = 0.0
            widths = [model.config.get_text_config().vocab_size for model in (self._model, assistant)]
            if widths[0] != widths[1]:  # `generate` wants both tokenizers then, and refuses them otherwise
                options["tokenizer"] = tokenizer
                options["assistant_tokenizer"] = load_tokenizer(locate(setup.draft)[0], setup.draft_revision)
        return options

    def _assistant(self, setup: Setup) -> PreTrainedModel:
        """The draft that was named, else the shipped one; of a draft folder the model with the whole vocabulary."""
        from specviz.engine.draft_files import read_draft, shipped_for, stored_embedding
        from specviz.engine.draft_modules import full_width_llama
        from specviz.engine.loader import locate

        target, (source, name) = self._model, locate(setup.target)
        embedding = target.get_input_embeddings().weight
        stored = stored_embedding(embedding, source)
        folder = shipped_for("draft_model", stored) if setup.draft is None else find_draft_folder(setup.draft)
        if folder is None and setup.draft is not None:
            self._draft_name = locate(setup.draft)[1]
            return load_reference(setup.draft, setup.hf_dtype, setup.device, setup.draft_revision)
        if folder is None:
            raise BadRequest(f"No draft model is shipped that was trained for {name}: name one with --draft.")
        file = read_draft(folder)
        self._draft_name = file.facts.name
        file.refuse_other_target(stored, target.config.get_text_config().num_hidden_layers, name)
        return full_width_llama(file, embedding, target.dtype, target.get_output_embeddings().weight)


def load_reference(source: str | None, dtype: str, device: str, revision: str | None) -> PreTrainedModel:
    """A model as `from_pretrained` gives it, without anything of ours; raises BadRequest if there is none."""
    from transformers import AutoModelForCausalLM

    from specviz.engine.loader import choose_device, choose_dtype, clear_errors, locate

    path, name = locate(source)
    chosen_device = choose_device(device)
    with clear_errors(name):
        model = AutoModelForCausalLM.from_pretrained(
            path,
            revision=revision,
            dtype=choose_dtype(dtype, chosen_device),
            use_safetensors=True,
            trust_remote_code=False,
        )
        return model.to(chosen_device).eval()
