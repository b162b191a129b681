//! A checkpoint's tokenizer and chat template: text to tokens and back, never half a character.
