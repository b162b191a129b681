"""Trains the byte-level BPE tokenizer and writes `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` into the
folder of each demo model."""

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import corpus

CHAT_TEMPLATE = (
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "    {%- if message['role'] not in ['system', 'user', 'assistant'] %}\n"
    "        {{- raise_exception('unknown role ' ~ message['role']) }}\n"
    "    {%- endif %}\n"
    "    {{- '<|' ~ message['role'] ~ '|>' ~ message['content'] }}\n"
    "    {%- if message['role'] == 'assistant' %}\n"
    "        {{- eos_token }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|assistant|>' }}\n"
    "{%- endif -%}"
)

PROBES = ["In the beginning God created the heaven", "na\u00efve caf\u00e9 \u2014 \u4f60\u597d \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600!",
          "  two  spaces\n\n\ttab\r\n", "\u0000\u0001\u007f\u00ff", "x" * 300, ""]


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=corpus.VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in corpus.SPECIALS],
        show_progress=False,
    )
    training, _ = corpus.split()
    tokenizer.train_from_iterator(map(corpus.plain, training), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", corpus.BOS)])
    return tokenizer


def check(tokenizer):
    """Any text survives a round trip, byte for byte."""
    assert tokenizer.get_vocab_size() == corpus.VOCABULARY
    assert [tokenizer.token_to_id(s) for s in corpus.SPECIALS] == list(range(len(corpus.SPECIALS)))
    for text in PROBES:
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=True) == text, text


def write(tokenizer, folder):
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"content": "", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    config = {
        "added_tokens_decoder": {str(i): special | {"content": s} for i, s in enumerate(corpus.SPECIALS)},
        "additional_special_tokens": ["<|system|>", "<|user|>", "<|assistant|>"],
        "bos_token": "<|bos|>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|eos|>",
        "model_max_length": 4096,
        "pad_token": "<|pad|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE + "\n")


def main():
    tokenizer = train()
    check(tokenizer)
    for name in ("k3-demo", "glm-demo"):
        write(tokenizer, corpus.MODELS / name)
    training, held_out = corpus.split()
    for name, part in ("training", training), ("held-out", held_out):
        text = "\n".join(map(corpus.plain, part))
        count = len(tokenizer.encode(text).ids)
        print(f"{name}: {len(part)} chapters, {len(text)} characters, {count} tokens, {len(text) / count:.2f} characters per token")


if __name__ == "__main__":
    main()
